// Uses a function that nothing defines.
#include "zoo/zoo.h"

ZOO_MANIFEST

namespace zoo_elsewhere {
__attribute__((visibility("default"))) int missing_function(int value);
}

ZOO_ENTRY {
  zoo::fill(table);
  return {zoo_elsewhere::missing_function(1) == 1, {}};
}
