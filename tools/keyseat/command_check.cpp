// keyseat check FILE.so: whether a plugin can be used here. Everything that can be said without
// running it first; then it is loaded in a child process, because the linker or a static
// initialiser of the library may end the process.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <filesystem>

#include "plugin/files/inspect.h"
#include "plugin/load.h"
#include "tools/keyseat/child_process.h"
#include "tools/keyseat/tool_commands.h"

namespace keyseat::tool {
namespace {

FoundFile identify(const std::string& given) {
  const auto file = std::filesystem::absolute(given).lexically_normal();
  const auto id = id_from_file_name(file.filename().string());
  if (id) return {*id, file};
  throw Error(Problem{
      Code::kP2NotAPlugin,
      {},
      fmt::format("{} is not a plugin: its name is not keyseat_KIND_NAME.so", file.string()),
      "",
      "Build it with keyseat_add_plugin(), which names it."});
}

// In the child: load, run the entry, and ask for everything that the host asks for at start-up.
int load_here(const InspectedPlugin& inspected) {
  const auto plugin = load_library(inspected).value_or_throw();
  const OptionSchema options = plugin->options();
  fmt::print("{} options, {} Hugging Face model types\n", options.size(),
             plugin->hf_models().size());
  return 0;
}

Problem ended_by_signal(const InspectedPlugin& plugin, const ChildResult& child) {
  return Problem{Code::kP4Unloadable,
                 {},
                 fmt::format("{} ended the process that loaded it by signal {} ({})",
                             plugin.id.text(), child.signal, strsignal(child.signal)),
                 "A static initialiser threw, an operator namespace was registered twice, or its "
                 "code crashed.",
                 fmt::format("File: {}. The child said:\n{}", plugin.file.string(), child.output)};
}

}  // namespace

int command_check(int argc, const char* const* argv) {
  CLI::App app{"Checks whether a plugin file can be used here, loading it in a child process.",
               "keyseat check"};
  std::string given;
  bool allow_abi_mismatch = false, load_only = false;
  app.add_option("FILE", given, "The library, keyseat_KIND_NAME.so")->required();
  app.add_flag("--allow-abi-mismatch", allow_abi_mismatch,
               "For developers: load a plugin of another build");
  app.add_flag("--load-only", load_only)->group("");  // what the child is called with
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }

  PluginSearch search;
  search.allow_abi_mismatch = allow_abi_mismatch;
  const InspectedPlugin plugin = inspect(identify(given), search);
  if (!plugin.refusals.empty()) throw Error(plugin.refusals);
  if (load_only) return load_here(plugin);

  for (const std::string& warning : plugin.warnings) fmt::print("warning: {}\n", warning);
  fmt::print("{} {}: trusted, well-formed, built for this version\n", plugin.id.text(),
             plugin.manifest.plugin_version);
  std::fflush(stdout);
  std::vector<std::string> arguments{"check", plugin.file.string(), "--load-only"};
  if (allow_abi_mismatch) arguments.emplace_back("--allow-abi-mismatch");
  const ChildResult child = run_keyseat(arguments);
  if (child.signal != 0) throw Error(ended_by_signal(plugin, child));
  fmt::print(child.exit_status == 0 ? stdout : stderr, "{}", child.output);
  return child.exit_status;
}

}  // namespace keyseat::tool
