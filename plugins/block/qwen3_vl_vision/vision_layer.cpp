// One pre-norm block: x += attn(LN1 x); x += mlp(LN2 x). Over tensor ranks each works with its own
// heads and columns, on equal rows. Legend: P patches, C vision hidden, n heads, d head dim.
#include <ATen/TensorOperators.h>

#include "keyseat/nn/activation.h"
#include "keyseat/nn/attention.h"
#include "keyseat/nn/linear.h"
#include "keyseat/nn/norm.h"
#include "keyseat/nn/rope.h"
#include "keyseat/nn/tensor_parallel.h"
#include "qwen3_vl_vision.h"

namespace keyseat_block_qwen3_vl_vision {

using at::Tensor;
using keyseat::DimSymbol;
using keyseat::Layout;
using keyseat::ParamRole;
using keyseat::ParamSpec;
using keyseat::Region;
namespace nn = keyseat::nn;

namespace {

// Position of `layer` in the deepstack list, or -1.
int64_t tap_index(const VisionConfig& config, int64_t layer) {
  const auto found = std::find(config.deepstack.begin(), config.deepstack.end(), layer);
  return found == config.deepstack.end() ? -1 : found - config.deepstack.begin();
}

keyseat::UnitSpec layer_spec(const VisionConfig& config, int64_t layer) {
  const int64_t hidden = config.hidden, wide = config.intermediate;
  const std::string prefix = config.checkpoint_prefix + "blocks." + std::to_string(layer) + ".";
  keyseat::UnitSpec spec;
  spec.name = "blocks." + std::to_string(layer);
  spec.rows = DimSymbol::kP;
  spec.layout = Layout::kImages;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, ParamRole role,
                       keyseat::Init init) -> ParamSpec& {
    ParamSpec param;
    param.name = name;
    param.shape = std::move(shape);
    param.role = role;
    param.init = init;
    param.checkpoint_name = prefix + name;
    spec.params.push_back(std::move(param));
    return spec.params.back();
  };
  const keyseat::Init normal{keyseat::Init::Kind::kNormal, config.init_std};
  const keyseat::Init zeros{keyseat::Init::Kind::kZeros, 0}, ones{keyseat::Init::Kind::kOnes, 0};
  // What does not divide leaves the whole block to every rank.
  const auto cut = [](int dim, int64_t units) {
    return keyseat::TensorSplit{dim, units, keyseat::TensorSplit::Otherwise::kReplicateUnit};
  };
  const auto add_qkv = [&](const char* name, std::vector<int64_t> shape, ParamRole role,
                           keyseat::Init init) {
    ParamSpec& param = add(name, std::move(shape), role, init);
    param.parts = {hidden, hidden, hidden};
    param.split = cut(0, config.heads);
  };
  add("norm1.weight", {hidden}, ParamRole::kNorm, ones);
  add("norm1.bias", {hidden}, ParamRole::kNorm, zeros);
  add_qkv("attn.qkv.weight", {3 * hidden, hidden}, ParamRole::kMatrix, normal);
  add_qkv("attn.qkv.bias", {3 * hidden}, ParamRole::kBias, zeros);
  add("attn.proj.weight", {hidden, hidden}, ParamRole::kMatrix, normal).split =
      cut(1, config.heads);
  add("attn.proj.bias", {hidden}, ParamRole::kBias, zeros);
  add("norm2.weight", {hidden}, ParamRole::kNorm, ones);
  add("norm2.bias", {hidden}, ParamRole::kNorm, zeros);
  add("mlp.linear_fc1.weight", {wide, hidden}, ParamRole::kMatrix, normal).split = cut(0, wide);
  add("mlp.linear_fc1.bias", {wide}, ParamRole::kBias, zeros).split = cut(0, wide);
  add("mlp.linear_fc2.weight", {hidden, wide}, ParamRole::kMatrix, normal).split = cut(1, wide);
  add("mlp.linear_fc2.bias", {hidden}, ParamRole::kBias, zeros);

  const int64_t half = config.head_dim() / 2;
  const auto images = Layout::kImages;
  spec.reads = {{"vision.hidden", {DimSymbol::kP, hidden}, {}, true, images, {}},
                {"vision.rope.cos", {DimSymbol::kP, half}, at::kFloat, false, images, {}},
                {"vision.rope.sin", {DimSymbol::kP, half}, at::kFloat, false, images, {}}};
  spec.writes = {{"vision.hidden", {DimSymbol::kP, hidden}, {}, true, images, {}}};
  if (const int64_t tap = tap_index(config, layer); tap >= 0) {
    spec.writes.push_back(
        {"vision.tap." + std::to_string(tap), {DimSymbol::kP, hidden}, {}, true, images, {}});
  }
  return spec;
}

class VisionLayer final : public keyseat::Unit {
 public:
  VisionLayer(const VisionConfig& config, int64_t layer)
      : Unit(layer_spec(config, layer)), config_(config), tap_(tap_index(config, layer)) {}

 protected:
  keyseat::Tensors forward_(const keyseat::Params& params, const keyseat::Tensors& inputs,
                            keyseat::StepContext& context) const override {
    const Tensor input_PC = inputs.at("vision.hidden");
    const Tensor attended_PC = input_PC + attention(params, input_PC, inputs.at("vision.rope.cos"),
                                                    inputs.at("vision.rope.sin"), context);
    const Tensor hidden_PC = attended_PC + mlp(params, attended_PC, context);
    context.tap("hidden", hidden_PC);
    keyseat::Tensors outputs{{"vision.hidden", hidden_PC}};
    // The same tensor under two names: the executor detaches each and adds both gradients.
    if (tap_ >= 0) outputs.set("vision.tap." + std::to_string(tap_), hidden_PC);
    return outputs;
  }

  keyseat::Cost cost_(const keyseat::WorkloadShape& shape) const override {
    const double hidden = static_cast<double>(config_.hidden),
                 wide = static_cast<double>(config_.intermediate);
    const double gemm = 2 * shape.patches * (4 * hidden * hidden + 2 * hidden * wide);
    return {gemm + 4 * hidden * shape.frame_squares,
            shape.element_bytes * shape.patches * (9 * hidden + 2 * wide)};
  }

 private:
  // In front of what is cut by columns.
  static Tensor enter(const keyseat::Params& params, const Tensor& x_PC,
                      keyseat::StepContext& context) {
    const bool split = nn::is_split(params, "attn.qkv.weight");
    return split ? nn::enter_split(x_PC, Layout::kImages, context) : x_PC;
  }

  // A linear that is cut by input columns: the bias is added once, behind the sum.
  static Tensor project_out(const keyseat::Params& params, const std::string& name, const Tensor& x,
                            keyseat::StepContext& context) {
    const auto &weight = params.at(name + ".weight"), &bias = params.at(name + ".bias");
    if (!nn::is_split(params, name + ".weight")) return nn::linear(x, weight, bias);
    return nn::leave_split(nn::linear(x, weight), Layout::kImages, context) + bias.value();
  }

  Tensor attention(const keyseat::Params& params, const Tensor& hidden_PC, const Tensor& cos,
                   const Tensor& sin, keyseat::StepContext& context) const {
    const auto run = [this, params,
                      &context](const std::vector<Tensor>& in) -> std::vector<Tensor> {
      const Tensor normed_PC =
          enter(params,
                nn::layer_norm(in[0], params.at("norm1.weight"), params.at("norm1.bias"),
                               config_.eps, context.kernels()),
                context);
      const auto& weight = params.at("attn.qkv.weight");
      const int64_t heads = weight.value().size(0) / (3 * config_.head_dim());
      // unbind, because its backward writes the gradient of q, k, v once; select's fills and adds
      // three tensors of the whole size.
      const std::vector<Tensor> qkv = nn::linear(normed_PC, weight, params.at("attn.qkv.bias"))
                                          .view({-1, 3, heads, config_.head_dim()})
                                          .unbind(1);
      const nn::RopeTables rope{in[1], in[2]};
      const Tensor q_Pnd = nn::apply_rope(qkv[0], rope, context.kernels());
      const Tensor k_Pnd = nn::apply_rope(qkv[1], rope, context.kernels());
      const double scale = 1.0 / std::sqrt(static_cast<double>(config_.head_dim()));
      const Tensor mixed_Pnd =
          nn::varlen_attention(q_Pnd, k_Pnd, qkv[2], context.row().vision_cu_seqlens,
                               /*causal=*/false, scale, context.kernels());
      return {project_out(params, "attn.proj", mixed_Pnd.flatten(1), context)};
    };
    return context.region(Region::kVisionAttn, run, {hidden_PC, cos, sin})[0];
  }

  Tensor mlp(const keyseat::Params& params, const Tensor& hidden_PC,
             keyseat::StepContext& context) const {
    const auto run = [this, params,
                      &context](const std::vector<Tensor>& in) -> std::vector<Tensor> {
      const Tensor normed_PC =
          enter(params,
                nn::layer_norm(in[0], params.at("norm2.weight"), params.at("norm2.bias"),
                               config_.eps, context.kernels()),
                context);
      const Tensor wide = nn::gelu_tanh(nn::linear(normed_PC, params.at("mlp.linear_fc1.weight"),
                                                   params.at("mlp.linear_fc1.bias")),
                                        context.kernels());
      return {project_out(params, "mlp.linear_fc2", wide, context)};
    };
    return context.region(Region::kVisionMlp, run, {hidden_PC})[0];
  }

  VisionConfig config_;
  int64_t tap_;
};

}  // namespace

std::unique_ptr<keyseat::Unit> make_vision_layer(const VisionConfig& config, int64_t layer) {
  return std::make_unique<VisionLayer>(config, layer);
}

}  // namespace keyseat_block_qwen3_vl_vision
