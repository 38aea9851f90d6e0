#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "tools/keyseat/run_setup.h"
#include "tools/keyseat/tool_commands.h"
#include "train/metrics.h"
#include "train/session.h"

namespace keyseat::tool {

namespace {

struct Range {
  int64_t least = std::numeric_limits<int64_t>::max(), most = 0, total = 0;
  void add(int64_t value) {
    least = std::min(least, value);
    most = std::max(most, value);
    total += value;
  }
};

// Reads samples and reports what training would see of them.
nlohmann::json inspect(Data& data, int64_t limit, int64_t shown) {
  nlohmann::json report{{"samples", data.size()}};
  const int64_t count = limit > 0 ? std::min(limit, data.size()) : data.size();
  Range tokens, patches, images, supervised;
  int64_t usable = 0;
  for (int64_t id = 0; id < count; ++id) {
    const Result<Sample> read = data.sample(id);
    if (!read) {
      report["failed"].push_back(read.problem().text());
      continue;
    }
    const Sample& sample = read.value();
    ++usable;
    tokens.add(static_cast<int64_t>(sample.tokens.size()));
    patches.add(sample.patches.defined() ? sample.patches.size(0) : 0);
    images.add(static_cast<int64_t>(sample.grid_thw.size()) / 3);
    const auto labelled =
        std::count_if(sample.labels.begin(), sample.labels.end(), [](int64_t l) { return l >= 0; });
    supervised.add(labelled);
    if (id < shown) {
      report["shown"].push_back({{"key", sample.key},
                                 {"text", sample.text},
                                 {"tokens", sample.tokens.size()},
                                 {"supervised", labelled},
                                 {"grid_thw", sample.grid_thw},
                                 {"files", sample.files}});
    }
  }
  report["read"] = count;
  report["usable"] = usable;
  const std::pair<const char*, const Range*> ranges[] = {
      {"tokens", &tokens}, {"patches", &patches}, {"images", &images}, {"supervised", &supervised}};
  for (const auto& [name, range] : ranges) {
    if (usable == 0) break;
    report[name] = {{"least", range->least},
                    {"most", range->most},
                    {"mean", static_cast<double>(range->total) / static_cast<double>(usable)}};
  }
  return report;
}

void print(const nlohmann::json& report) {
  fmt::print("{} samples, {} read, {} usable\n", report["samples"].dump(), report["read"].dump(),
             report["usable"].dump());
  for (const char* name : {"tokens", "patches", "images", "supervised"}) {
    if (!report.contains(name)) continue;
    const auto& range = report[name];
    fmt::print("{:<11} {} to {}, mean {:.1f}\n", name, range["least"].dump(), range["most"].dump(),
               range["mean"].get<double>());
  }
  if (report.contains("shown")) {
    for (const auto& sample : report["shown"]) {
      fmt::print("\n{}  {} tokens, {} supervised, grids {}\n{}\n", sample["key"].get<std::string>(),
                 sample["tokens"].dump(), sample["supervised"].dump(), sample["grid_thw"].dump(),
                 sample["text"].get<std::string>());
    }
  }
  if (report.contains("failed")) {
    fmt::print("\n{} failed:\n", report["failed"].size());
    for (const auto& text : report["failed"]) fmt::print("  {}\n", text.get<std::string>());
  }
  if (report.contains("notice")) fmt::print("{}\n", report["notice"].get<std::string>());
}

}  // namespace

int command_data(int argc, const char* const* argv) {
  CLI::App app{"Look into a data source", "keyseat data"};
  app.require_subcommand(1);
  CLI::App* inspecting = app.add_subcommand(
      "inspect", "Read samples, report sizes and failures, print the first ones");
  ConfigArguments arguments;
  bool json = false, held_out = false;
  int64_t limit = 0, shown = 2;
  arguments.add_to(*inspecting);
  inspecting->add_option("--limit", limit, "Read at most this many samples; 0: all");
  inspecting->add_option("--show", shown, "Print the first samples");
  inspecting->add_flag("--eval", held_out, "Look at the evaluation data");
  inspecting->add_flag("--json", json, "Print the result as JSON on stdout");
  app.parse(argc, argv);
  ConfigPlugins plugins(arguments.allow_abi_mismatch);
  RunConfig config = resolve_or_throw(arguments, plugins, ConfigUse::kTrain);
  train::SessionOptions options;
  options.data = false;
  const PluginChoice choice = held_out ? config.eval.data : config.data;
  train::Session session(std::move(config), plugins.registry(), options);
  const auto data = session.open_data(choice, /*training=*/false);
  nlohmann::json report = inspect(*data, limit, shown);
  if (data->synthetic()) report["notice"] = train::kSyntheticNotice;
  if (json) {
    fmt::print("{}\n", report.dump());
  } else {
    print(report);
  }
  return report["usable"] == 0 ? exit_status(Code::kR6Data) : 0;
}

}  // namespace keyseat::tool
