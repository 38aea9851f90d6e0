// Final norm, head, cross-entropy by chunks, and the auxiliary losses of all MoE layers.
// Legend: T rows, H hidden, V vocabulary, R rows of which logits are wanted, L MoE layers, E
// experts.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "keyseat/nn/cross_entropy.h"
#include "keyseat/nn/linear.h"
#include "keyseat/nn/norm.h"
#include "keyseat/nn/router.h"
#include "qwen3_moe.h"

namespace keyseat_block_qwen3_moe {

using at::Tensor;
using keyseat::DimSymbol;
using keyseat::ParamRole;
namespace nn = keyseat::nn;

namespace {

keyseat::UnitSpec head_spec(const DecoderConfig& config) {
  keyseat::UnitSpec spec;
  spec.name = "head";
  add_param(spec, config.checkpoint_prefix, "norm.weight", {config.hidden}, ParamRole::kNorm,
            config);
  auto& weight = add_param(spec, "", "lm_head.weight", {config.vocab, config.hidden},
                           ParamRole::kEmbedding, config);
  if (config.tied) {
    weight.tie = "word_embeddings";
    weight.checkpoint_name.clear();  // the owner's name stands for both
  }
  spec.reads = {{"hidden", {DimSymbol::kT, config.hidden}, {}, true, {}, {}},
                {"labels", {DimSymbol::kT}, at::kLong, false, {}, {}},
                {"logit_rows", {DimSymbol::kR}, at::kLong, false, {}, {}}};
  spec.writes = {{"loss.ce", {1}, at::kFloat, true, {}, "supervised"},
                 {"logits", {DimSymbol::kR, config.vocab}, at::kFloat, false, {}, {}}};
  for (int64_t layer : config.moe_layers()) {
    spec.reads.push_back(
        {"router.stats." + std::to_string(layer), {2, config.experts}, at::kFloat, true, {}, {}});
    spec.reads.push_back({"router.z." + std::to_string(layer), {1}, at::kFloat, true, {}, {}});
  }
  if (!config.moe_layers().empty()) {
    spec.writes.push_back({"loss.aux", {1}, at::kFloat, true, {}, "tokens"});
    spec.writes.push_back({"loss.z", {1}, at::kFloat, true, {}, "tokens"});
  }
  return spec;
}

class Head final : public keyseat::Unit {
 public:
  explicit Head(const DecoderConfig& config) : Unit(head_spec(config)), config_(config) {}

 protected:
  keyseat::Tensors forward_(const keyseat::Params& params, const keyseat::Tensors& inputs,
                            keyseat::StepContext& context) const override {
    const Tensor normed_TH =
        nn::rms_norm(inputs.at("hidden"), params.at("norm.weight"), config_.eps, context.kernels());
    context.tap("normed", normed_TH);
    Tensor per_token_T;
    const bool tapped = context.tapped("per_token_loss");
    keyseat::Tensors outputs;
    outputs.set("loss.ce", nn::linear_cross_entropy(normed_TH, params.at("lm_head.weight"),
                                                    inputs.at("labels"), context.kernels(),
                                                    tapped ? &per_token_T : nullptr));
    if (tapped) context.tap("per_token_loss", per_token_T);
    outputs.set("logits", logits(normed_TH, params, inputs.at("logit_rows")));
    if (!config_.moe_layers().empty()) add_router_losses(inputs, context, outputs);
    return outputs;
  }

  keyseat::Cost cost_(const keyseat::WorkloadShape& shape) const override {
    const double hidden = static_cast<double>(config_.hidden),
                 vocab = static_cast<double>(config_.vocab);
    return {2 * shape.supervised * hidden * vocab, shape.element_bytes * shape.tokens * 2 * hidden +
                                                       4 * hidden * (shape.supervised + vocab)};
  }

 private:
  static Tensor logits(const Tensor& normed_TH, const keyseat::Params& params,
                       const Tensor& rows_R) {
    at::NoGradGuard no_grad;
    return nn::linear(normed_TH.index({rows_R}), params.at("lm_head.weight")).to(at::kFloat);
  }

  // The counts are summed over the ranks that share the micro-batch, once: a replay uses the kept
  // sums.
  void add_router_losses(const keyseat::Tensors& inputs, keyseat::StepContext& context,
                         keyseat::Tensors& outputs) const {
    std::vector<Tensor> stats_2E, z_1;
    for (int64_t layer : config_.moe_layers()) {
      stats_2E.push_back(inputs.at("router.stats." + std::to_string(layer)));
      z_1.push_back(inputs.at("router.z." + std::to_string(layer)));
    }
    const Tensor counts_LE = context.keep<Tensor>("router_counts", [&] {
      std::vector<Tensor> counts_E;
      for (const Tensor& stats : stats_2E) counts_E.push_back(stats.detach().select(0, 1));
      Tensor summed_LE = at::stack(counts_E).contiguous();
      context.sum_over_token_ranks(summed_LE);
      return summed_LE;
    });
    const auto layers = static_cast<int64_t>(stats_2E.size());
    outputs.set("loss.aux",
                nn::load_balancing_loss(stats_2E, counts_LE, context.row().shared_tokens,
                                        context.aux_pooled()));
    outputs.set("loss.z", at::cat(z_1).sum(0, true) / static_cast<double>(layers));
  }

  DecoderConfig config_;
};

}  // namespace

std::unique_ptr<keyseat::Unit> make_head(const DecoderConfig& config) {
  return std::make_unique<Head>(config);
}

}  // namespace keyseat_block_qwen3_moe
