// Legend: P patches, D elements of a patch, C vision hidden.
#include <ATen/TensorOperators.h>

#include "keyseat/nn/linear.h"
#include "keyseat/nn/position_embedding.h"
#include "qwen3_vl_vision.h"

namespace keyseat_block_qwen3_vl_vision {

using keyseat::DimSymbol;
using keyseat::Layout;
using keyseat::ParamRole;
using keyseat::ParamSpec;

namespace {

keyseat::UnitSpec patch_embed_spec(const VisionConfig& config) {
  keyseat::UnitSpec spec;
  spec.name = "patch_embed";
  spec.rows = DimSymbol::kP;
  spec.layout = Layout::kImages;
  const keyseat::Init normal{keyseat::Init::Kind::kNormal, config.init_std};
  const keyseat::Init zeros{keyseat::Init::Kind::kZeros, 0};

  ParamSpec weight;
  weight.name = "proj.weight";
  weight.shape = {config.hidden, config.patch_elements()};
  weight.init = normal;
  weight.checkpoint_name = config.checkpoint_prefix + "patch_embed.proj.weight";
  weight.checkpoint_shape = {config.hidden, config.channels, config.temporal, config.patch,
                             config.patch};
  ParamSpec bias;
  bias.name = "proj.bias";
  bias.shape = {config.hidden};
  bias.role = ParamRole::kBias;
  bias.init = zeros;
  bias.checkpoint_name = config.checkpoint_prefix + "patch_embed.proj.bias";
  ParamSpec table;
  table.name = "pos_embed.weight";
  table.shape = {config.grid_side * config.grid_side, config.hidden};
  table.role = ParamRole::kEmbedding;
  table.init = normal;
  table.checkpoint_name = config.checkpoint_prefix + "pos_embed.weight";
  spec.params = {weight, bias, table};

  const auto images = Layout::kImages;
  spec.reads = {
      {"patches", {DimSymbol::kP, config.patch_elements()}, at::kFloat, false, images, {}},
      {"vision.position.index", {4, DimSymbol::kP}, at::kLong, false, images, {}},
      {"vision.position.weight", {4, DimSymbol::kP}, at::kFloat, false, images, {}}};
  spec.writes = {{"vision.hidden", {DimSymbol::kP, config.hidden}, {}, true, images, {}}};
  return spec;
}

class PatchEmbed final : public keyseat::Unit {
 public:
  explicit PatchEmbed(const VisionConfig& config)
      : Unit(patch_embed_spec(config)), config_(config) {}

 protected:
  keyseat::Tensors forward_(const keyseat::Params& params, const keyseat::Tensors& inputs,
                            keyseat::StepContext& context) const override {
    const at::Tensor patches_PD = inputs.at("patches").to(context.compute_dtype());
    const at::Tensor projected_PC =
        keyseat::nn::linear(patches_PD, params.at("proj.weight"), params.at("proj.bias"));
    context.tap("projected", projected_PC);
    const at::Tensor position_PC = keyseat::nn::interpolate_positions(
        params.at("pos_embed.weight"),
        {inputs.at("vision.position.index"), inputs.at("vision.position.weight")},
        context.kernels());
    const at::Tensor hidden_PC = projected_PC + position_PC;
    context.tap("hidden", hidden_PC);
    return {{"vision.hidden", hidden_PC}};
  }

  keyseat::Cost cost_(const keyseat::WorkloadShape& shape) const override {
    const double elements = static_cast<double>(config_.patch_elements());
    const double hidden = static_cast<double>(config_.hidden);
    return {2 * shape.patches * elements * hidden,
            shape.patches * (4 * elements + shape.element_bytes * hidden)};
  }

 private:
  VisionConfig config_;
};

}  // namespace

std::unique_ptr<keyseat::Unit> make_patch_embed(const VisionConfig& config) {
  return std::make_unique<PatchEmbed>(config);
}

}  // namespace keyseat_block_qwen3_vl_vision
