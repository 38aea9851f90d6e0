// Needs libkeyseat_zoo_gone.so, which no folder of the search has.
#include "zoo/zoo.h"

ZOO_MANIFEST

__attribute__((visibility("default"))) int keyseat_zoo_gone();

ZOO_ENTRY {
  zoo::fill(table);
  return {keyseat_zoo_gone() == 1, {}};
}
