// keyseat chain CONFIG: the model as its chain of units, without any of its memory.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "tools/keyseat/chain/collect.h"
#include "tools/keyseat/chain/row_options.h"
#include "tools/keyseat/command_line.h"
#include "tools/keyseat/run_setup.h"
#include "tools/keyseat/tool_commands.h"

namespace keyseat::tool {
int command_chain(int argc, const char* const* argv) {
  CLI::App app{
      "Builds a model of any size on meta tensors, runs it forward and backward there, and prints "
      "parameters, work and memory of its blocks.",
      "keyseat chain"};
  ConfigArguments arguments;
  std::string file;
  app.add_option("CONFIG", file,
                 "Configuration of a run or of a model (TOML), or a Hugging Face config.json")
      ->required()
      ->check(CLI::ExistingFile);
  arguments.add_to(app, /*positional=*/false);
  chain::RowShape row;
  chain::add_row_options(app, row);
  bool units = false, json = false;
  app.add_flag("--units", units, "Also print every unit, and what would cross a cut before it");
  app.add_flag("--json", json, "Print JSON");
  if (const auto status = end_of_command_line(app, argc, argv)) return *status;

  ConfigPlugins plugins(arguments.allow_abi_mismatch);
  std::vector<GivenBlock> blocks;
  if (std::filesystem::path(file).extension() == ".json") {
    blocks = blocks_of_hf_file(file, arguments);
  } else {
    arguments.file = file;
  }
  const RunConfig config =
      resolve_or_throw(arguments, plugins, ConfigUse::kModel, std::move(blocks));
  const chain::ChainFacts facts = chain::collect(config, plugins.registry(), row);
  fmt::print("{}", json ? chain::chain_json(facts) : chain::chain_text(facts, units));
  return 0;
}

}  // namespace keyseat::tool
