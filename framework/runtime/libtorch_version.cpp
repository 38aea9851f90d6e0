#include <torch/headeronly/version.h>

#include "keyseat/version.h"

namespace keyseat {

const char* libtorch_version() { return TORCH_VERSION; }

}  // namespace keyseat
