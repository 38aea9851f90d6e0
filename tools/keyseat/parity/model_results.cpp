#include "tools/keyseat/parity/model_results.h"

#include <ATen/TensorOperators.h>

#include <nlohmann/json.hpp>

#include "tools/keyseat/parity/limits.h"

namespace keyseat::tool::parity {

namespace {

using nlohmann::json;

double sum_of(const at::Tensor& tensor) { return tensor.to(at::kDouble).sum().item<double>(); }

class ResultChecks {
 public:
  ResultChecks(const json& results, const Chain& chain, const ModelRun& run, Report& report)
      : results_(results), chain_(chain), run_(run), report_(report) {}

  void run() {
    check_scalars();
    check_steps();
    check_expert_load();
    check_without_gradient();
    check_parameters();
  }

 private:
  // A recorded number; null and absent count as not there.
  void number(const std::string& name, const json& object, const char* key, double computed,
              const Tolerance& tolerance) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number()) {
      report_.checks.push_back(exact_check(name, "missing in results.json"));
      return;
    }
    report_.checks.push_back(compare_numbers(name, computed, found->get<double>(), tolerance));
  }

  void same(const std::string& name, const json& computed, const json& recorded) {
    report_.checks.push_back(exact_check(
        name, computed == recorded
                  ? ""
                  : fmt::format("is {}, recorded {}", computed.dump(), recorded.dump())));
  }

  bool has_aux() const { return run_.steps.front().terms.contains("aux"); }

  void check_scalars() {
    const StepFigures& first = run_.steps.front();
    number("results.loss", results_, "loss", first.loss, kLoss);
    number("results.ce_loss", results_, "ce_loss", first.terms.at("ce"), kLoss);
    if (has_aux()) {
      number("results.aux_loss", results_, "aux_loss", first.terms.at("aux"), kLoss);
      number("results.router_aux_loss_coef", results_, "router_aux_loss_coef", run_.aux_weight,
             kExact);
    }
    const RowCounts& counts = run_.counts;
    number("results.parameter_count", results_, "parameter_count",
           static_cast<double>(chain_.parameter_count()), kExact);
    number("results.real_tokens", results_, "real_tokens", static_cast<double>(counts.tokens),
           kExact);
    number("results.loss_tokens", results_, "loss_tokens", static_cast<double>(counts.supervised),
           kExact);
    const json& by_items = results_.at("loss_with_num_items_in_batch");
    // The auxiliary term is not divided by the number of items.
    const double items = by_items.at("num_items_in_batch").get<double>();
    const double aux = has_aux() ? run_.aux_weight * first.terms.at("aux") : 0;
    number("results.loss_with_num_items_in_batch", by_items, "loss",
           run_.loss_sums.at("ce") / items + aux, kLoss);
  }

  void check_steps() {
    const json& steps = results_.at("steps");
    same("results.steps", run_.steps.size(), steps.size());
    for (size_t i = 0; i < std::min(run_.steps.size(), steps.size()); ++i) {
      const StepFigures& figures = run_.steps[i];
      const std::string name = fmt::format("results.steps.{}.", i);
      number(name + "loss", steps[i], "loss", figures.loss, kStepLoss);
      if (has_aux()) {
        number(name + "ce_loss", steps[i], "ce_loss", figures.terms.at("ce"), kStepLoss);
        number(name + "aux_loss", steps[i], "aux_loss", figures.terms.at("aux"), kStepLoss);
      }
      if (i + 1 == run_.steps.size()) continue;  // behind the last update
      number(name + "grad_norm", steps[i], "grad_norm", figures.grad_norm, kGradNorm);
      number(name + "clip_coefficient", steps[i], "clip_coefficient", figures.clip, kGradNorm);
    }
  }

  void check_expert_load() {
    json computed = json::object();
    for (const auto& [layer, counts] : run_.expert_load) computed[layer] = counts;
    const json& recorded = results_.at("tokens_per_expert_by_layer");
    if (recorded.is_null())
      return same("results.tokens_per_expert_by_layer", computed, json::object());
    for (const auto& [layer, counts] : recorded.items()) {
      same("results.tokens_per_expert_by_layer." + layer, computed.value(layer, json()), counts);
    }
    same("results.tokens_per_expert_by_layer", computed.size(), recorded.size());
  }

  void check_without_gradient() {
    const std::vector<std::string> computed(run_.without_gradient.begin(),
                                            run_.without_gradient.end());
    json recorded = results_.at("parameters_without_gradient");
    std::sort(recorded.begin(), recorded.end());
    same("results.parameters_without_gradient", computed, recorded);
  }

  void check_parameters() {
    const json& recorded = results_.at("parameters_after_steps");
    std::set<std::string> computed;
    for (size_t i = 0; i < run_.after.size(); ++i) {
      const auto& [name, after] = run_.after[i];
      computed.insert(name);
      const std::string prefix = "results.parameters_after_steps." + name + ".";
      const auto found = recorded.find(name);
      if (found == recorded.end()) {
        report_.checks.push_back(exact_check(prefix, "missing in results.json"));
        continue;
      }
      check_parameter(prefix, name, run_.before[i].second, after, *found);
    }
    for (const auto& [name, sums] : recorded.items()) {
      if (!computed.contains(name))
        report_.checks.push_back(exact_check("results.parameters_after_steps." + name,
                                             "the model has no parameter of this name"));
    }
  }

  void check_parameter(const std::string& prefix, const std::string& name, const at::Tensor& before,
                       const at::Tensor& after, const json& sums) {
    same(prefix + "shape", after.sizes().vec(), sums.at("shape"));
    // What training started from follows from the recorded sums: it tells a changed weight file.
    const double start = sums.at("sum").get<double>() - sums.at("delta_sum").get<double>();
    report_.checks.push_back(
        compare_numbers("model.safetensors: sum of " + name, sum_of(before), start, kStoredSum));
    const at::Tensor change = after.to(at::kDouble) - before.to(at::kDouble);
    number(prefix + "sum", sums, "sum", sum_of(after), kSum);
    number(prefix + "abs_sum", sums, "abs_sum", sum_of(after.to(at::kDouble).abs()), kAbsSum);
    number(prefix + "delta_sum", sums, "delta_sum", sum_of(change), kSum);
    number(prefix + "delta_abs_sum", sums, "delta_abs_sum", sum_of(change.abs()), kChangeAbsSum);
  }

  const json& results_;
  const Chain& chain_;
  const ModelRun& run_;
  Report& report_;
};

}  // namespace

void check_results(const json& results, const Chain& chain, const ModelRun& run, Report& report) {
  ResultChecks(results, chain, run, report).run();
}

}  // namespace keyseat::tool::parity
