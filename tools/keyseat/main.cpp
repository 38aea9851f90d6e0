// bin/keyseat: parses the command line without LibTorch, then loads libkeyseat_tool.so for the
// commands that need it.
#include <dlfcn.h>

#include <cstdio>
#include <filesystem>

#include "keyseat/suggest.h"
#include "keyseat/version.h"
#include "tools/keyseat/commands.h"
#include "tools/keyseat/entry.h"
#include "tools/keyseat/light/config_syntax.h"

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

int usage(std::FILE* out) {
  std::fprintf(out,
               "keyseat %s: mixture-of-experts vision-language training, every part a plugin\n\n",
               keyseat::version());
  std::fprintf(out, "usage: keyseat COMMAND ...     keyseat COMMAND --help\n\ncommands:\n");
  for (const auto& command : keyseat::tool::command_summaries()) {
    std::fprintf(out, "  %-10s %s\n", std::string(command.name).c_str(),
                 std::string(command.summary).c_str());
  }
  return out == stdout ? 0 : keyseat::tool::kUsageStatus;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (name == "--help" || name == "-h" || name == "help") return usage(stdout);
  if (name == "--version") {
    std::printf("keyseat %s\n", keyseat::version());
    return 0;
  }
  std::vector<std::string> names;
  for (const auto& command : keyseat::tool::command_summaries()) {
    names.emplace_back(command.name);
    if (command.name != name) continue;
    if (command.light != nullptr) return command.light(argc - 1, argv + 1);
    const int status = keyseat::tool::config_syntax_status(argc - 1, argv + 1);
    return status != 0 ? status : run_tool(argc - 1, argv + 1);
  }
  if (name.empty()) return usage(stderr);
  std::fprintf(stderr, "keyseat: there is no command \"%s\". %s\n", argv[1],
               keyseat::did_you_mean(name, names).c_str());
  return keyseat::tool::kUsageStatus;
}
