// Throws in a static initialiser, where nobody can catch it: the process ends.
#include <stdexcept>

#include "zoo/zoo.h"

ZOO_MANIFEST

namespace {

int throw_at_load() { throw std::runtime_error("a static initialiser of the zoo threw this"); }
const int kThrown = throw_at_load();

}  // namespace

ZOO_ENTRY {
  zoo::fill(table);
  return {kThrown == 0, {}};
}
