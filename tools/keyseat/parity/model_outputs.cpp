// Legend: T real tokens, B rows and S columns of the padded batch, P patches, V visual tokens, K
// top-k, D rotary dims.
#include "tools/keyseat/parity/model_outputs.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

#include "tools/keyseat/parity/fixtures.h"
#include "tools/keyseat/parity/limits.h"
#include "tools/keyseat/parity/tap_names.h"

namespace keyseat::tool::parity {

namespace {

class OutputChecks {
 public:
  OutputChecks(const SafetensorsReader& outputs, const Chain& chain, const Batch& batch,
               const TapRecorder& taps, const ModelRun& run, Report& report)
      : outputs_(outputs),
        chain_(chain),
        batch_(batch),
        taps_(taps.tensors()),
        run_(run),
        report_(report),
        real_T_(at::tensor(batch.real, at::kLong)) {}

  void run() {
    check_positions();
    check_taps();
    check_losses();
    for (const auto& [name, gradient] : run_.gradients) whole("grad." + name, gradient, kGradient);
    for (const std::string& name : outputs_.names()) {
      if (!known_.contains(name))
        report_.not_compared.push_back(
            {name,
             several_ranks() ? "several ranks: this one has not all of its rows"
                             : "the model computes no tensor that this name stands for",
             several_ranks()});
    }
  }

 private:
  bool several_ranks() const { return run_.mesh.world() > 1; }

  // Whether this rank has all rows of the batch: those of a data rank are of its own samples.
  bool is_whole(const TapName& tap) const {
    return run_.mesh.data_degree() == 1 && run_.mesh.split_axes(tap.layout).empty();
  }

  // The recorded tensor, or undefined after a failed check.
  at::Tensor recorded(const std::string& name) {
    known_.insert(name);
    if (outputs_.has(name)) return outputs_.tensor(name);
    report_.checks.push_back(exact_check(name, "missing in outputs.safetensors"));
    return {};
  }

  void compare(const std::string& name, const at::Tensor& computed, const at::Tensor& expected,
               const Tolerance& tolerance) {
    report_.checks.push_back(compare_tensors(name, computed, expected, tolerance));
  }

  void whole(const std::string& name, const at::Tensor& computed, const Tolerance& tolerance) {
    if (const at::Tensor expected = recorded(name); expected.defined())
      compare(name, computed, expected, tolerance);
  }

  // Real rows of a recorded [B, S, ...] or [B * S, ...]; `name` only for the message.
  at::Tensor real_rows(const std::string& name, const at::Tensor& values) {
    at::Tensor flat = values;
    const int64_t padded = batch_.rows * batch_.length;
    if (flat.dim() >= 2 && flat.size(0) * flat.size(1) == padded && flat.size(0) != padded)
      flat = flat.flatten(0, 1);
    if (flat.dim() < 1 || flat.size(0) != padded) {
      refuse_recording("outputs.safetensors",
                       fmt::format("{} is [{}], which has no {} x {} tokens", name,
                                   fmt::join(values.sizes(), ", "), batch_.rows, batch_.length));
    }
    return flat.index_select(0, real_T_);
  }

  void tokens(const std::string& name, const at::Tensor& computed, const Tolerance& tolerance) {
    if (const at::Tensor expected = recorded(name); expected.defined())
      compare(name, without_tail(computed), real_rows(name, expected), tolerance);
  }

  // A row that ranks share is padded at its end.
  at::Tensor without_tail(const at::Tensor& rows) const {
    return several_ranks() ? rows.slice(0, 0, real_T_.size(0)) : rows;
  }

  // Images and videos are recorded apart, each in batch order.
  void visual(const std::string& name, const at::Tensor& computed, bool merged,
              const Tolerance& tolerance) {
    const auto part = [&](const char* prefix, const VisualOrder& order) {
      if (order.patches.empty()) return;
      const at::Tensor index = at::tensor(merged ? order.tokens : order.patches, at::kLong);
      whole(prefix + name, computed.index_select(0, index), tolerance);
    };
    part("vision.", batch_.images);
    part("vision_video.", batch_.videos);
  }

  void check_taps() {
    for (const TapName& tap : known_taps(chain_)) {
      if (!is_whole(tap)) continue;
      const auto found = taps_.find(tap.tap);
      if (found == taps_.end()) {
        if (several_ranks()) continue;  // its unit runs on another stage
        report_.checks.push_back(exact_check(tap.output, "the model does not tap " + tap.tap));
        continue;
      }
      const at::Tensor& computed = found->second;
      switch (tap.kind) {
        case TapKind::kPatches:
        case TapKind::kVisualTokens:
          visual(tap.output, computed, tap.kind == TapKind::kVisualTokens, kVision);
          break;
        case TapKind::kDeepstackSum:
          if (batch_.visual()) tokens(tap.output, computed, kHidden);
          break;
        case TapKind::kHidden:
          tokens(tap.output, computed, kHidden);
          break;
        case TapKind::kRouterLogits:
          tokens(tap.output, computed, kRouterLogits);
          break;
        case TapKind::kTopK:
          check_top_k(tap.output, without_tail(computed), without_tail(taps_.at(tap.partner)));
          break;
        case TapKind::kLogits:
          tokens(tap.output, computed, kLogits);
          break;
      }
    }
  }

  // Equal sets of experts; weights are compared expert by expert. `name` + "index" / "weight".
  void check_top_k(const std::string& name, const at::Tensor& index_TK,
                   const at::Tensor& weight_TK) {
    const at::Tensor index = recorded(name + "index"), weight = recorded(name + "weight");
    if (!index.defined() || !weight.defined()) return;
    const auto sorted = [](const at::Tensor& index, const at::Tensor& weight) {
      auto [ordered, place] = index.sort(/*stable=*/true, 1, false);
      return std::pair(ordered, weight.gather(1, place));
    };
    const at::Tensor real_index = real_rows(name + "index", index),
                     real_weight = real_rows(name + "weight", weight);
    if (real_index.sizes() != index_TK.sizes() || real_weight.sizes() != weight_TK.sizes()) {
      compare(name + "index", index_TK, real_index, kExact);
      compare(name + "weight", weight_TK, real_weight, kRouterWeights);
      return;
    }
    const auto [computed_set, computed_weight] = sorted(index_TK, weight_TK);
    const auto [recorded_set, recorded_weight] = sorted(real_index, real_weight);
    compare(name + "index", computed_set, recorded_set, kExact);
    compare(name + "weight", computed_weight, recorded_weight, kRouterWeights);
  }

  // A batch without images is positioned by counting padding too; every row then differs from ours
  // by its first real position.
  void check_positions() {
    const at::Tensor own_3T = run_.row.at("position_ids");
    at::Tensor shifted_3T = own_3T;
    if (const at::Tensor positions = recorded("position_ids"); positions.defined()) {
      const int64_t axes = positions.dim() == 3 ? positions.size(0) : 1;
      const at::Tensor flat = positions.reshape({axes, -1});
      const at::Tensor expected = real_rows("position_ids", flat.t()).t().expand({3, -1});
      if (!batch_.visual()) shifted_3T = own_3T + first_positions(expected[0]);
      compare("position_ids", shifted_3T, expected, kExact);
    }
    if (outputs_.has("rope_deltas") || batch_.visual()) check_rope_deltas(own_3T);
    check_tables(shifted_3T);
  }

  // [T]: the value at the first real token of the same row.
  at::Tensor first_positions(const at::Tensor& positions_T) const {
    at::Tensor first_T = positions_T.clone();
    for (int64_t t = 1; t < first_T.size(0); ++t) {
      if (batch_.sample_of[t] == batch_.sample_of[t - 1]) first_T[t] = first_T[t - 1];
    }
    return first_T;
  }

  // What generation adds to the length of a row to get the next position.
  void check_rope_deltas(const at::Tensor& own_3T) {
    std::vector<int64_t> deltas;
    int64_t begin = 0;
    for (const Sample& sample : batch_.samples) {
      const auto length = static_cast<int64_t>(sample.tokens.size());
      const int64_t next =
          length > 0 ? own_3T.narrow(1, begin, length).max().item<int64_t>() + 1 : 0;
      deltas.push_back(next - length);
      begin += length;
    }
    whole("rope_deltas", at::tensor(deltas, at::kLong).view({-1, 1}), kExact);
  }

  // The tables are functions of the batch, made by the blocks themselves.
  void check_tables(const at::Tensor& shifted_3T) {
    Tensors batch = run_.row;
    batch.set("position_ids", shifted_3T);
    for (const DerivedSpec& derived : chain_.derived()) {
      const std::string& name = derived.tensor.name;
      const bool text = name == "rope.cos" || name == "rope.sin";
      if (!text && name != "vision.rope.cos" && name != "vision.rope.sin") continue;
      // Both halves of the rotary dims use the same values.
      const at::Tensor half = derived.make(batch, run_.facts);
      const at::Tensor table = at::cat({half, half}, 1);
      if (!text) {
        visual(name.substr(std::string("vision.").size()), table, false, kRopeTable);
      } else if (const at::Tensor expected_BSD = recorded(name); expected_BSD.defined()) {
        const at::Tensor expanded =
            expected_BSD.expand({batch_.rows, batch_.length, expected_BSD.size(-1)});
        compare(name, table, real_rows(name, expanded), kRopeTable);
      }
    }
  }

  void check_losses() {
    const auto scalar = [&](const char* name, double value) {
      whole(name, at::tensor({value}, at::kDouble), kLoss);
    };
    const StepFigures& first = run_.steps.front();
    scalar("loss", first.loss);
    scalar("ce_loss", first.terms.at("ce"));
    if (first.terms.contains("aux")) scalar("aux_loss", first.terms.at("aux"));
  }

  const SafetensorsReader& outputs_;
  const Chain& chain_;
  const Batch& batch_;
  const std::map<std::string, at::Tensor>& taps_;
  const ModelRun& run_;
  Report& report_;
  const at::Tensor real_T_;
  std::set<std::string> known_;
};

}  // namespace

void check_outputs(const SafetensorsReader& outputs, const Chain& chain, const Batch& batch,
                   const TapRecorder& taps, const ModelRun& run, Report& report) {
  OutputChecks(outputs, chain, batch, taps, run, report).run();
}

}  // namespace keyseat::tool::parity
