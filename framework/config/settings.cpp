#include "config/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "base/option_value.h"
#include "config/cpu_precision.h"
#include "keyseat/suggest.h"

namespace keyseat {
namespace {

// A value that depends on other values takes the place of an unset one.
void set_default(Options& options, const std::string& name, std::string value) {
  const auto& entry = options.entries().at(name);
  const bool same = entry.value == OptionValue(value);
  if (!options.has(name) || same) options.set(name, {std::move(value), "default", entry.where});
}

}  // namespace

void read_run(Options& options, const ConfigRequest& request, RunSettings& run,
              ConfigSection& section, Problems& problems) {
  if (!options.has("name")) {
    const std::string stem = std::filesystem::path(request.file).stem().string();
    set_default(options, "name", stem.empty() ? "run" : stem);
    section.remarks["name"] = "from the file's name";
  }
  run.name = options.get_string("name");
  if (run.name.empty()) {
    problems.push_back(options.problem(Code::kC3Value, "name", "the name of the run is empty", "",
                                       "Give a name, or leave the key out"));
  }
  std::error_code error;
  const auto folder = std::filesystem::absolute(std::filesystem::path("runs") / run.name, error);
  set_default(options, "dir", folder.lexically_normal().string());
  run.dir = options.get_string("dir");
  if (options.has("steps")) run.steps = options.get_int("steps");
  run.seed = options.get_int("seed");
  run.device = options.get_string("device") == "cuda" ? DeviceKind::kCuda : DeviceKind::kCpu;
  const std::string& precision = options.get_string("precision");
  if (precision == "auto") {
    run.precision = automatic_precision(run.device, run.precision_reason);
    section.remarks["precision"] = run.precision_reason;
  } else {
    run.precision = precision == "bf16" ? Precision::kBf16 : Precision::kFp32;
  }
  if (options.has("ranks_per_node")) {
    run.ranks_per_node = options.get_int("ranks_per_node");
    if (request.world % run.ranks_per_node != 0) {
      problems.push_back(options.problem(Code::kC4Combination, "ranks_per_node",
                                         fmt::format("{} does not divide the {} ranks of this job",
                                                     run.ranks_per_node, request.world),
                                         "Nodes have equal numbers of ranks"));
    }
  }
  run.timeout_seconds = options.get_float("timeout_s");
  if (options.has("threads")) run.threads = options.get_int("threads");
}

void read_model(const Options& options, const Node* table, ModelSettings& model,
                Problems& problems) {
  model.freeze = options.get_string_list("freeze");
  std::vector<std::string> names;
  for (const PluginChoice& block : model.blocks) names.push_back(block.instance);
  const Node* given = table != nullptr ? table->find("freeze") : nullptr;
  for (size_t i = 0; i < model.freeze.size(); ++i) {
    const std::string& name = model.freeze[i];
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    const bool has_element = given != nullptr && i < given->items.size();
    problems.push_back(
        {Code::kC3Value, has_element ? given->items[i].origin.where : options.where("freeze"),
         fmt::format("\"freeze\" in [model] names {}, but no block has this name", quote(name)), "",
         did_you_mean(name, names)});
  }
  if (options.has("init")) model.init = options.get_string("init");
  const auto& allowed = options.get_string_list("init_allow");
  auto allows = [&](const char* what) {
    return std::find(allowed.begin(), allowed.end(), what) != allowed.end();
  };
  model.allow_missing = allows("missing");
  model.allow_unexpected = allows("unexpected");
  model.allow_shape = allows("shape");
  if (!allowed.empty() && model.init.empty()) {
    problems.push_back(options.problem(Code::kC4Combination, "init_allow",
                                       "has no effect without \"init\"", "",
                                       "Give \"init\", or remove it"));
  }
}

void read_comm(Options& options, RunConfig& config) {
#ifdef NDEBUG
  constexpr bool kDebugBuild = false;
#else
  constexpr bool kDebugBuild = true;
#endif
  if (!options.has("check")) {
    options.set("check", {kDebugBuild, "default", options.entries().at("check").where});
  }
  config.check_collectives = options.get_bool("check");
}

void read_schedule(const Options& options, int64_t run_steps, ScheduleSettings& schedule,
                   Problems& problems) {
  const std::string& kind = options.get_string("kind");
  schedule.kind = kind == "constant" ? ScheduleKind::kConstant
                  : kind == "cosine" ? ScheduleKind::kCosine
                                     : ScheduleKind::kWsd;
  schedule.warmup_steps = options.get_int("warmup_steps");
  schedule.total_steps = options.has("total_steps") ? options.get_int("total_steps") : run_steps;
  schedule.min_ratio = options.get_float("min_ratio");
  auto without_effect = [&](const char* name) {
    if (!options.given(name)) return;
    problems.push_back(
        options.problem(Code::kC4Combination, name,
                        fmt::format("has no effect on a schedule of kind {}", quote(kind)), "",
                        "Remove it or choose another kind"));
  };
  if (schedule.kind == ScheduleKind::kConstant) without_effect("min_ratio");
  if (schedule.kind != ScheduleKind::kWsd) {
    without_effect("decay_steps");
    without_effect("decay_ratio");
  } else if (options.has("decay_steps") && options.given("decay_ratio")) {
    problems.push_back(options.problem(Code::kC4Combination, "decay_ratio",
                                       "is given together with \"decay_steps\"",
                                       "Both say how long the decay is", "Give one of them"));
  }
  if (schedule.total_steps == 0) return;  // no run: nothing to compare with
  if (schedule.kind == ScheduleKind::kWsd) {
    const double share =
        options.get_float("decay_ratio") * static_cast<double>(schedule.total_steps);
    schedule.decay_steps =
        options.has("decay_steps") ? options.get_int("decay_steps") : std::llround(share);
  }
  if (schedule.warmup_steps > schedule.total_steps - schedule.decay_steps) {
    problems.push_back(options.problem(
        Code::kC4Combination, "warmup_steps",
        fmt::format(
            "{} steps of warm-up{} do not fit into {} steps", schedule.warmup_steps,
            schedule.decay_steps > 0 ? fmt::format(" and {} of decay", schedule.decay_steps) : "",
            schedule.total_steps),
        options.has("total_steps") ? "" : "total_steps is run.steps where it is not given"));
  }
}

void read_measures(const Options& options, EvalSettings& eval, Problems& problems) {
  const auto& measures = options.get_string_list("measure");
  const auto has = [&](const char* what) {
    return std::find(measures.begin(), measures.end(), what) != measures.end();
  };
  eval.loss = has("loss");
  eval.accuracy = has("accuracy");
  if (measures.empty()) {
    problems.push_back(options.problem(Code::kC3Value, "measure", "\"measure\" in [eval] is empty",
                                       "An evaluation measures something",
                                       "Name \"loss\", \"accuracy\" or both; to switch evaluation "
                                       "during training off, set eval.every to 0"));
  }
}

void read_checkpoint(Options& options, const RunSettings& run, CheckpointSettings& checkpoint,
                     ConfigSection& section) {
  set_default(options, "dir",
              (std::filesystem::path(run.dir) / "checkpoints").lexically_normal().string());
  section.remarks["dir"] = "in run.dir";
  checkpoint.dir = options.get_string("dir");
  checkpoint.every = options.get_int("every");
  checkpoint.keep = options.get_int("keep");
  checkpoint.may_differ = options.get_string_list("may_differ");
}

void check_block_names(const std::vector<PluginChoice>& blocks,
                       const std::vector<SourcePosition>& names_at, Problems& problems) {
  std::set<std::string> seen;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const std::string& name = blocks[i].instance;
    if (name.empty()) continue;  // reported as missing
    const bool usable = std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '_' || c == '-';
    });
    if (!usable) {
      problems.push_back({Code::kC3Value, names_at[i],
                          fmt::format("{} cannot be the name of a block", quote(name)),
                          "It is the prefix of parameter names",
                          "Use letters, digits, \"_\" and \"-\""});
    } else if (!seen.insert(name).second) {
      problems.push_back({Code::kC4Combination, names_at[i],
                          fmt::format("two blocks have the name {}", quote(name)), "",
                          "Give each block of [[model.blocks]] a name of its own"});
    }
  }
}

}  // namespace keyseat
