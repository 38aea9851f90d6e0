// bin/keyseat: parses the command line without LibTorch, then loads libkeyseat_tool.so for the
// commands that need it.
#include <dlfcn.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "keyseat/version.h"
#include "tools/keyseat/entry.h"

namespace {

// The library lies beside the executable's folder, in the build tree and installed: bin/../lib.
std::filesystem::path tool_library() {
  const auto executable = std::filesystem::canonical("/proc/self/exe");
  return executable.parent_path().parent_path() / "lib" / "libkeyseat_tool.so";
}

int run_tool(int argc, const char* const* argv) {
  const auto path = tool_library();
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    std::fprintf(stderr, "keyseat: could not load %s: %s\n", path.c_str(), dlerror());
    return 1;
  }
  auto* entry = reinterpret_cast<KeyseatToolMain>(dlsym(handle, "keyseat_tool_main"));
  if (entry == nullptr) {
    std::fprintf(stderr, "keyseat: %s has no keyseat_tool_main; it belongs to another version\n",
                 path.c_str());
    return 1;
  }
  return entry(argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Keyseat: mixture-of-experts vision-language training, every part a plugin"};
  app.require_subcommand(1);
  app.set_version_flag("--version", keyseat::version());
  app.add_subcommand("version", "Print the versions of Keyseat and LibTorch");
  CLI11_PARSE(app, argc, argv);
  return run_tool(argc - 1, argv + 1);
}
