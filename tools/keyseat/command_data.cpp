#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "data/failures.h"
#include "keyseat/suggest.h"
#include "tools/keyseat/command_line.h"
#include "tools/keyseat/inspect_page.h"
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

// Reads samples and reports what training would see of them; the first `shown` go to `page`, too.
nlohmann::json inspect(Data& data, int64_t limit, int64_t shown, InspectPage* page) {
  nlohmann::json report{{"samples", data.size()}};
  const int64_t count = limit > 0 ? std::min(limit, data.size()) : data.size();
  Range tokens, patches, images, supervised;
  data::Failures failures;
  int64_t usable = 0;
  for (int64_t id = 0; id < count; ++id) {
    const Result<Sample> read = data.sample(id);
    if (!read) {
      report["failed"].push_back(read.problem().text());
      data::add_failure(failures, read.problem());
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
    if (usable <= shown) {
      if (page != nullptr) page->add(sample);
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
  for (const auto& [reason, failure] : failures)
    report["reasons"][reason] = {{"count", failure.first}, {"example", failure.second}};
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
    fmt::print("\n{} failed", report["failed"].size());
    const char* before = ": ";
    for (const auto& [reason, failure] : report["reasons"].items()) {
      fmt::print("{}{} {}", before, failure["count"].dump(), reason);
      before = ", ";
    }
    fmt::print("\n");
    for (const auto& text : report["failed"]) fmt::print("  {}\n", text.get<std::string>());
  }
  if (report.contains("notice")) fmt::print("{}\n", report["notice"].get<std::string>());
}

void write_page(const std::string& path, const std::string& html) {
  std::ofstream stream(path, std::ios::binary);
  stream << html;
  stream.close();
  if (!stream) {
    throw Error(
        Problem{Code::kR7File, {path, 0, 0}, "cannot write the page", std::strerror(errno), ""});
  }
}

struct InspectArguments {
  ConfigArguments config;
  bool json = false, held_out = false;
  int64_t limit = 0, shown = -1;
  std::string html;

  void add_to(CLI::App& app) {
    config.add_to(app);
    app.add_option("--limit", limit, "Read at most this many samples; 0: all");
    app.add_option("--show", shown, "Print the first samples that are usable (2; 24 with --html)");
    app.add_flag("--eval", held_out, "Look at the evaluation data");
    app.add_flag("--json", json, "Print the result as JSON on stdout");
    app.add_option("--html", html,
                   "Also write a page with samples, images and labels to this file");
  }
};

int run_inspect(const InspectArguments& arguments) {
  ConfigPlugins plugins(arguments.config.allow_abi_mismatch);
  RunConfig config = resolve_or_throw(arguments.config, plugins, ConfigUse::kTrain);
  train::SessionOptions options;
  options.data = false;
  const PluginChoice choice = arguments.held_out ? config.eval.data : config.data;
  const std::string title = config.run.name + ": data/" + choice.name;
  train::Session session(std::move(config), plugins.registry(), options);
  const auto data = session.open_data(choice, /*training=*/false);
  const bool to_page = !arguments.html.empty();
  InspectPage page(*data, session.chain().input());
  const int64_t shown = arguments.shown >= 0 ? arguments.shown : to_page ? 24 : 2;
  nlohmann::json report = inspect(*data, arguments.limit, shown, to_page ? &page : nullptr);
  if (data->synthetic()) report["notice"] = train::kSyntheticNotice;
  if (to_page) {
    write_page(arguments.html, page.html(title, report));
    report["page"] = arguments.html;
    report.erase("shown");  // they are on the page
  }
  if (arguments.json) {
    fmt::print("{}\n", report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    print(report);
    if (to_page) fmt::print("\npage  {}\n", arguments.html);
  }
  return report["usable"] == 0 ? exit_status(Code::kR6Data) : 0;
}

struct IndexArguments {
  ConfigArguments config;
  bool json = false, rebuild = false;

  void add_to(CLI::App& app) {
    config.add_to(app);
    app.add_flag("--rebuild", rebuild, "Build indexes again even where stored ones fit");
    app.add_flag("--json", json, "Print the result as JSON on stdout");
  }
};

int run_index(const IndexArguments& arguments) {
  ConfigPlugins plugins(arguments.config.allow_abi_mismatch);
  RunConfig config = resolve_or_throw(arguments.config, plugins, ConfigUse::kTrain);
  train::SessionOptions options;
  options.data = false;
  const PluginChoice choice = config.data;
  train::Session session(std::move(config), plugins.registry(), options);
  const auto data = session.open_data(choice, /*training=*/true, arguments.rebuild);
  nlohmann::json report = nlohmann::json::array();
  for (const ShardIndex& shard : data->index()) {
    report.push_back({{"shard", shard.path},
                      {"index", shard.stored},
                      {"state", shard.state},
                      {"samples", shard.samples},
                      {"tokens", shard.tokens},
                      {"patches", shard.patches},
                      {"images", shard.images},
                      {"failed", shard.failed}});
  }
  if (arguments.json) {
    fmt::print("{}\n", report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return 0;
  }
  for (const ShardIndex& shard : data->index()) {
    fmt::print("{}: {} samples, {} tokens, {} patches, {} images, {} cannot be used\n  {}: {}\n",
               shard.path, shard.samples, shard.tokens, shard.patches, shard.images, shard.failed,
               shard.state == "read" ? "stored index read" : "index built, " + shard.state,
               shard.stored.empty() ? "kept in memory only" : shard.stored);
  }
  if (report.empty()) fmt::print("data/{} keeps no index\n", choice.name);
  return 0;
}

}  // namespace

int command_data(int argc, const char* const* argv) {
  CLI::App app{"Look into a data source, or index it", "keyseat data"};
  app.require_subcommand(1);
  CLI::App* inspecting =
      app.add_subcommand("inspect", "Read samples, report sizes and failures, show the first ones");
  CLI::App* indexing =
      app.add_subcommand("index", "Build the index of every shard and store it beside the data");
  InspectArguments inspect_arguments;
  inspect_arguments.add_to(*inspecting);
  IndexArguments index_arguments;
  index_arguments.add_to(*indexing);
  if (argc > 1 && argv[1][0] != '-') {
    const std::vector<std::string> names = {"inspect", "index"};
    if (std::find(names.begin(), names.end(), argv[1]) == names.end()) {
      fmt::print(stderr, "keyseat data: there is no command \"{}\"; there are {}. {}\n", argv[1],
                 fmt::join(names, " and "), did_you_mean(argv[1], names));
      return kUsageStatus;
    }
  }
  if (const auto status = end_of_command_line(app, argc, argv)) return *status;
  return indexing->parsed() ? run_index(index_arguments) : run_inspect(inspect_arguments);
}

}  // namespace keyseat::tool
