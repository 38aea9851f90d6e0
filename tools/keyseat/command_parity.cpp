#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tools/keyseat/command_line.h"
#include "tools/keyseat/parity/fixtures.h"
#include "tools/keyseat/run_setup.h"
#include "tools/keyseat/tool_commands.h"

namespace keyseat::tool {

namespace {
constexpr int kDiffers = 1;
}

int command_parity(int argc, const char* const* argv) {
  CLI::App app{"Compare with a folder of results that another implementation recorded",
               "keyseat parity"};
  parity::ParityArguments arguments;
  std::string kernels = "fast";
  bool json = false;
  app.add_option("DIR", arguments.folder,
                 "Recorded folder of a model, of images or of a tokenizer; or smart_resize.csv")
      ->required()
      ->check(CLI::ExistingPath);
  arguments.config.add_to(app, /*positional=*/false);
  app.add_option("--kernels", kernels, "fast: what training uses; naive: the plain oracles")
      ->check(CLI::IsMember({"fast", "naive"}));
  app.add_option("--config", arguments.model_config,
                 "Hugging Face configuration in DIR; config.json where not given");
  app.add_option("--vocab", arguments.vocabulary,
                 "Published Qwen vocabulary (tiktoken file or tokenizer.json)")
      ->check(CLI::ExistingPath);
  app.add_flag("--json", json, "Print the result as JSON on stdout");
  if (const auto status = end_of_command_line(app, argc, argv)) return *status;
  arguments.kernels = kernels == "naive" ? Kernels::kNaive : Kernels::kFast;
  const parity::Report report = parity::run_parity(arguments);
  if (!is_first_rank()) return report.pass() ? 0 : kDiffers;
  if (json) {
    fmt::print("{}\n", parity::report_json(report).dump());
  } else {
    fmt::print("{}", parity::report_table(report));
  }
  return report.pass() ? 0 : kDiffers;
}

}  // namespace keyseat::tool
