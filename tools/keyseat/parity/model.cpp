// A folder with a model: configuration, weights, a batch and what another implementation computed.
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "tools/keyseat/parity/compare.h"
#include "tools/keyseat/parity/fixtures.h"
#include "tools/keyseat/parity/model_outputs.h"
#include "tools/keyseat/parity/model_results.h"
#include "tools/keyseat/run_setup.h"

namespace keyseat::tool::parity {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* kOwnSpelling = "config.json";
constexpr const char* kPublishedSpelling = "config.published.json";

class ModelFolder {
 public:
  explicit ModelFolder(const ParityArguments& arguments)
      : arguments_(arguments), folder_(arguments.folder), config_(config_file()) {}

  Report run() {
    const json results = read_json_file((folder_ / "results.json").string());
    const std::string input_file = (folder_ / "inputs.safetensors").string();
    const auto inputs = open("inputs.safetensors"), weights = open("model.safetensors"),
               outputs = open("outputs.safetensors");
    Report report;
    report.case_name = fs::canonical(folder_).filename();
    report.kernels = arguments_.kernels == Kernels::kNaive ? "naive" : "fast";
    try {
      ConfigPlugins plugins(arguments_.config.allow_abi_mismatch);
      RunConfig config = resolve(config_, results, plugins);
      check_spellings(config, results, report);
      TapRecorder taps;
      train::SessionOptions options;
      options.kernels = arguments_.kernels;
      options.taps = &taps;
      options.data = false;
      train::Session session(std::move(config), plugins.registry(), options);
      const Batch batch = read_batch(inputs, input_file, session.chain().input());
      const auto updates = static_cast<int64_t>(results.at("steps").size()) - 1;
      if (updates < 1) refuse_recording("results.json", "it records no optimizer step");
      const ModelRun run = run_model(session, taps, batch, weights, updates);
      check_outputs(outputs, session.chain(), batch, taps, run, report);
      check_results(results, session.chain(), run, report);
    } catch (const json::exception& error) {
      refuse_recording((folder_ / "results.json").string(),
                       fmt::format("not the expected content: {}", json_mismatch(error)));
    }
    return report;
  }

 private:
  fs::path config_file() const {
    if (!arguments_.model_config.empty()) {
      const fs::path relative = folder_ / arguments_.model_config;
      return fs::exists(relative) ? relative : fs::path(arguments_.model_config);
    }
    const fs::path own = folder_ / kOwnSpelling;
    return fs::exists(own) ? own : folder_ / kPublishedSpelling;
  }

  SafetensorsReader open(const char* name) const {
    return SafetensorsReader::open((folder_ / name).string()).value_or_throw();
  }

  // fp32, the recorded optimizer and loss; what the user sets comes on top.
  RunConfig resolve(const fs::path& file, const json& results, ConfigPlugins& plugins) const {
    std::vector<GivenBlock> blocks = blocks_of_hf_file(file.string(), arguments_.config);
    const json& optimizer = results.at("optimizer");
    std::vector<std::string> sets{"run.precision=\"fp32\"", "log.level=\"warn\""};
    const auto set = [&](const char* key, const json& value) {
      sets.push_back(fmt::format("{}={}", key, value.dump()));
    };
    set("model.init", fs::absolute(folder_ / "model.safetensors").string());
    set("optimizer.clip_norm", optimizer.at("max_grad_norm"));
    set("optimizer.options.lr", optimizer.at("lr"));
    set("optimizer.options.beta1", optimizer.at("betas").at(0));
    set("optimizer.options.beta2", optimizer.at("betas").at(1));
    set("optimizer.options.eps", optimizer.at("eps"));
    set("optimizer.options.weight_decay", optimizer.at("weight_decay"));
    set("optimizer.options.decay_roles", {"matrix", "bias", "norm", "embedding", "router"});
    if (arguments_.kernels == Kernels::kNaive) set("optimizer.options.kernel", "naive");
    set("loss.aux.weight", recorded_aux_weight(file.string()));
    return resolve_or_throw(arguments_.config, plugins, ConfigUse::kModel, std::move(blocks),
                            std::move(sets));
  }

  // The same model written in the other spelling gives the same options.
  void check_spellings(const RunConfig& config, const json& results, Report& report) const {
    for (const char* spelling : {kOwnSpelling, kPublishedSpelling}) {
      const fs::path other = folder_ / spelling;
      if (!fs::exists(other) || fs::equivalent(other, config_)) continue;
      ConfigPlugins plugins(arguments_.config.allow_abi_mismatch);
      const RunConfig read = resolve(other, results, plugins);
      report.checks.push_back(
          exact_check(fmt::format("{} against {}", spelling, config_.filename().string()),
                      differences(config, read)));
    }
  }

  static std::string differences(const RunConfig& a, const RunConfig& b) {
    if (a.loss.aux_weight != b.loss.aux_weight) return "router_aux_loss_coef differs";
    if (a.model.blocks.size() != b.model.blocks.size()) return "the number of blocks differs";
    std::string text;
    for (size_t i = 0; i < a.model.blocks.size(); ++i) {
      const PluginChoice &left = a.model.blocks[i], &right = b.model.blocks[i];
      if (left.name != right.name || left.instance != right.instance)
        text += fmt::format("block {} is {}, not {}; ", i, right.name, left.name);
      for (const auto& [key, entry] : left.options.entries()) {
        const auto found = right.options.entries().find(key);
        if (found != right.options.entries().end() && found->second.value == entry.value) continue;
        text += fmt::format("{}.{} differs; ", left.instance, key);
      }
    }
    return text;
  }

  const ParityArguments& arguments_;
  const fs::path folder_;
  const fs::path config_;
};

}  // namespace

Report model_parity(const ParityArguments& arguments) { return ModelFolder(arguments).run(); }

}  // namespace keyseat::tool::parity
