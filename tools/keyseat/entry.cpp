#include "tools/keyseat/entry.h"

#include <cstdio>

#include "keyseat/version.h"

int keyseat_tool_main(int argc, const char* const* argv) {
  if (argc >= 1 && std::string_view(argv[0]) == "version") {
    std::printf("keyseat %s, LibTorch %s\n", keyseat::version(), keyseat::libtorch_version());
    return 0;
  }
  std::fprintf(stderr, "keyseat: unknown command \"%s\"\n", argc >= 1 ? argv[0] : "");
  return 2;
}
