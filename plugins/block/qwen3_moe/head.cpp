// Final norm, head, cross-entropy by chunks, and the auxiliary losses of all MoE layers.
// Legend: T rows, H hidden, V vocabulary, R rows of which logits are wanted, L MoE layers, E
// experts.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "keyseat/nn/norm.h"
#include "keyseat/nn/router.h"
#include "keyseat/nn/tensor_parallel.h"
#include "qwen3_moe.h"

namespace keyseat_block_qwen3_moe {

using at::Tensor;
using keyseat::DimSymbol;
using keyseat::Layout;
using keyseat::ParamRole;
namespace nn = keyseat::nn;

namespace {

keyseat::UnitSpec head_spec(const DecoderConfig& config) {
  keyseat::UnitSpec spec;
  spec.name = "head";
  spec.layout = Layout::kRows;
  add_param(spec, config.checkpoint_prefix, "norm.weight", {config.hidden}, ParamRole::kNorm,
            config);
  auto& weight = add_param(spec, "", "lm_head.weight", {config.vocab, config.hidden},
                           ParamRole::kEmbedding, config);
  weight.split = vocabulary_split(config);
  if (config.tied) {
    weight.tie = "word_embeddings";
    weight.checkpoint_name.clear();  // the owner's name stands for both
  }
  const auto rows = Layout::kRows;
  spec.reads = {{"hidden", {DimSymbol::kT, config.hidden}, {}, true, rows, {}},
                {"labels", {DimSymbol::kT}, at::kLong, false, Layout::kContextRows, {}},
                {"logit_rows", {DimSymbol::kR}, at::kLong, false, {}, {}}};
  spec.writes = {{"loss.ce", {1}, at::kFloat, true, rows, "supervised"},
                 {"logits", {DimSymbol::kR, config.vocab}, at::kFloat, false, {}, {}}};
  for (int64_t layer : config.moe_layers()) {
    const std::string number = std::to_string(layer);
    spec.reads.push_back(
        {"router.stats." + number, {2, config.experts}, at::kFloat, true, rows, {}});
    spec.reads.push_back({"router.z." + number, {1}, at::kFloat, true, rows, {}});
  }
  if (!config.moe_layers().empty()) {
    spec.writes.push_back({"loss.aux", {1}, at::kFloat, true, rows, "tokens"});
    spec.writes.push_back({"loss.z", {1}, at::kFloat, true, rows, "tokens"});
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
    const auto& weight = params.at("lm_head.weight");
    outputs.set("loss.ce",
                nn::split_cross_entropy(normed_TH, weight, config_.vocab, inputs.at("labels"),
                                        context, tapped ? &per_token_T : nullptr));
    if (tapped) context.tap("per_token_loss", per_token_T);
    outputs.set("logits", nn::split_logits(normed_TH, weight, config_.vocab,
                                           inputs.at("logit_rows"), context));
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
  // The counts are summed over the ranks that share the micro-batch, once: a replay uses the kept
  // sums. Probabilities and z stay those of own rows: losses of all ranks are added up.
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
