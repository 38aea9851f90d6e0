// Over tensor ranks each works with its own columns of fc1, on equal rows. Legend: P patches, C
// vision hidden, m merge size, V = P / m^2 visual tokens, D = C m^2, H decoder hidden.
#include <ATen/TensorOperators.h>

#include "keyseat/nn/activation.h"
#include "keyseat/nn/linear.h"
#include "keyseat/nn/norm.h"
#include "keyseat/nn/tensor_parallel.h"
#include "qwen3_vl_projector.h"

namespace keyseat_block_qwen3_vl_projector {

using at::Tensor;
using keyseat::DimSymbol;
using keyseat::Layout;
using keyseat::ParamRole;
using keyseat::ParamSpec;
namespace nn = keyseat::nn;

namespace {

keyseat::UnitSpec merger_spec(const MergerConfig& config) {
  keyseat::UnitSpec spec;
  spec.name = config.name;
  spec.rows = DimSymbol::kP;
  spec.layout = Layout::kImages;
  if (config.norm_after_merge) spec.after = config.reads;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, ParamRole role,
                       keyseat::Init init, int split_dim = -1) {
    ParamSpec param;
    param.name = name;
    param.shape = std::move(shape);
    param.role = role;
    param.init = init;
    // A width that does not divide leaves the whole merger to every rank.
    if (split_dim >= 0) {
      param.split = {split_dim, config.merged(), keyseat::TensorSplit::Otherwise::kReplicateUnit};
    }
    param.checkpoint_name = config.checkpoint_prefix + config.name + "." + name;
    spec.params.push_back(std::move(param));
  };
  const keyseat::Init normal{keyseat::Init::Kind::kNormal, config.init_std};
  const keyseat::Init zeros{keyseat::Init::Kind::kZeros, 0}, ones{keyseat::Init::Kind::kOnes, 0};
  const int64_t normed = config.norm_after_merge ? config.merged() : config.hidden;
  add("norm.weight", {normed}, ParamRole::kNorm, ones);
  add("norm.bias", {normed}, ParamRole::kNorm, zeros);
  add("linear_fc1.weight", {config.merged(), config.merged()}, ParamRole::kMatrix, normal, 0);
  add("linear_fc1.bias", {config.merged()}, ParamRole::kBias, zeros, 0);
  add("linear_fc2.weight", {config.out_hidden, config.merged()}, ParamRole::kMatrix, normal, 1);
  add("linear_fc2.bias", {config.out_hidden}, ParamRole::kBias, zeros);
  const auto images = Layout::kImages;
  spec.reads = {{config.reads, {DimSymbol::kP, config.hidden}, {}, true, images, {}}};
  spec.writes = {{config.writes, {DimSymbol::kV, config.out_hidden}, {}, true, images, {}}};
  return spec;
}

class Merger final : public keyseat::Unit {
 public:
  explicit Merger(const MergerConfig& config) : Unit(merger_spec(config)), config_(config) {}

 protected:
  keyseat::Tensors forward_(const keyseat::Params& params, const keyseat::Tensors& inputs,
                            keyseat::StepContext& context) const override {
    const auto run = [this, params,
                      &context](const std::vector<Tensor>& in) -> std::vector<Tensor> {
      const auto norm = [&](const Tensor& x) {
        return nn::layer_norm(x, params.at("norm.weight"), params.at("norm.bias"), config_.eps,
                              context.kernels());
      };
      // Consecutive rows are one m x m block.
      const int64_t visual_tokens = in[0].size(0) / (config_.merge * config_.merge);
      const Tensor merged_VD = config_.norm_after_merge
                                   ? norm(in[0].reshape({visual_tokens, config_.merged()}))
                                   : norm(in[0]).view({visual_tokens, config_.merged()});
      const bool split = nn::is_split(params, "linear_fc1.weight");
      const Tensor entered_VD =
          split ? nn::enter_split(merged_VD, Layout::kImages, context) : merged_VD;
      const Tensor wide_VD = nn::gelu_erf(
          nn::linear(entered_VD, params.at("linear_fc1.weight"), params.at("linear_fc1.bias")),
          context.kernels());
      const auto &weight = params.at("linear_fc2.weight"), &bias = params.at("linear_fc2.bias");
      if (!split) return {nn::linear(wide_VD, weight, bias)};
      // The bias is added once, behind the sum of the parts.
      const Tensor sum_VH = nn::leave_split(nn::linear(wide_VD, weight), Layout::kImages, context);
      return {sum_VH + bias.value()};
    };
    const Tensor tokens_VH =
        context.region(keyseat::Region::kProjector, run, {inputs.at(config_.reads)})[0];
    context.tap("merged", tokens_VH);
    return {{config_.writes, tokens_VH}};
  }

  keyseat::Cost cost_(const keyseat::WorkloadShape& shape) const override {
    const double merged = static_cast<double>(config_.merged()),
                 out = static_cast<double>(config_.out_hidden);
    return {2 * shape.visual_tokens * merged * (merged + out),
            shape.element_bytes * shape.visual_tokens * (4 * merged + out)};
  }

 private:
  MergerConfig config_;
};

}  // namespace

std::unique_ptr<keyseat::Unit> make_merger(const MergerConfig& config) {
  return std::make_unique<Merger>(config);
}

}  // namespace keyseat_block_qwen3_vl_projector
