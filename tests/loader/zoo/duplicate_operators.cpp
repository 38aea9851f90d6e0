// Registers one operator namespace twice, as two plugins with the same namespace would: LibTorch
// throws in a static initialiser, and the process ends.
#include <torch/library.h>

#include "zoo/zoo.h"

ZOO_MANIFEST

namespace {

const torch::Library kFirst(torch::Library::DEF, "keyseat_zoo_operators", std::nullopt, __FILE__,
                            __LINE__);
const torch::Library kSecond(torch::Library::DEF, "keyseat_zoo_operators", std::nullopt, __FILE__,
                             __LINE__);

}  // namespace

ZOO_ENTRY {
  zoo::fill(table);
  return {};
}
