#include <fmt/format.h>

#include "keyseat/version.h"
#include "tools/keyseat/tool_commands.h"

namespace keyseat::tool {

int command_version(int, const char* const*) {
  fmt::print("keyseat {}, LibTorch {}\n", version(), libtorch_version());
  return 0;
}

}  // namespace keyseat::tool
