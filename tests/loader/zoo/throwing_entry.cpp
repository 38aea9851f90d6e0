// Throws out of its entry.
#include <stdexcept>

#include "zoo/zoo.h"

ZOO_MANIFEST

ZOO_ENTRY {
  zoo::fill(table);
  throw std::runtime_error("the entry of the zoo threw this");
}
