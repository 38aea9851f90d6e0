// Token embedding, then visual tokens in place of their placeholders. Legend: T rows, V visual
// tokens, H hidden.
#include "keyseat/nn/linear.h"
#include "keyseat/nn/tensor_parallel.h"
#include "qwen3_moe.h"

namespace keyseat_block_qwen3_moe {

using keyseat::DimSymbol;
using keyseat::Layout;
using keyseat::ParamRole;

namespace {

keyseat::UnitSpec embedding_spec(const DecoderConfig& config) {
  keyseat::UnitSpec spec;
  spec.name = "embed_tokens";
  spec.layout = Layout::kRows;
  auto& weight = add_param(spec, config.checkpoint_prefix + "embed_tokens.", "weight",
                           {config.vocab, config.hidden}, ParamRole::kEmbedding, config);
  weight.split = vocabulary_split(config);
  if (config.tied) weight.tie = "word_embeddings";
  spec.reads = {{"tokens", {DimSymbol::kT}, at::kLong, false, Layout::kContextRows, {}}};
  if (config.vision) {
    spec.reads.push_back(
        {"vision.merged", {DimSymbol::kV, config.hidden}, {}, true, Layout::kRows, {}});
    spec.reads.push_back({"visual_dst", {DimSymbol::kV}, at::kLong, false, Layout::kRows, {}});
  }
  spec.writes = {{"hidden", {DimSymbol::kT, config.hidden}, {}, true, Layout::kRows, {}}};
  return spec;
}

class Embedding final : public keyseat::Unit {
 public:
  explicit Embedding(const DecoderConfig& config) : Unit(embedding_spec(config)), config_(config) {}

 protected:
  keyseat::Tensors forward_(const keyseat::Params& params, const keyseat::Tensors& inputs,
                            keyseat::StepContext& context) const override {
    at::Tensor hidden_TH = keyseat::nn::split_embedding(inputs.at("tokens"), params.at("weight"),
                                                        config_.vocab, context);
    if (config_.vision) {
      hidden_TH =
          keyseat::nn::replace_rows(hidden_TH, inputs.at("visual_dst"), inputs.at("vision.merged"));
    }
    context.tap("hidden", hidden_TH);
    return {{"hidden", hidden_TH}};
  }

  keyseat::Cost cost_(const keyseat::WorkloadShape& shape) const override {
    return {0, shape.element_bytes * shape.tokens * static_cast<double>(config_.hidden)};
  }

 private:
  DecoderConfig config_;
};

}  // namespace

std::unique_ptr<keyseat::Unit> make_embedding(const DecoderConfig& config) {
  return std::make_unique<Embedding>(config);
}

}  // namespace keyseat_block_qwen3_moe
