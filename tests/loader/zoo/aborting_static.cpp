// A static initialiser ends the process.
#include <cstdlib>

#include "zoo/zoo.h"

ZOO_MANIFEST

namespace {

int abort_at_load() { std::abort(); }
const int kAborted = abort_at_load();

}  // namespace

ZOO_ENTRY {
  zoo::fill(table);
  return {kAborted == 0, {}};
}
