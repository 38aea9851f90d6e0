// Legend: P patches, C vision hidden, m merge size, V = P / m^2 visual tokens, D = C m^2 merged
// width, H decoder hidden.
#include "example.h"

#include <ATen/TensorOperators.h>

#include "keyseat/nn/activation.h"
#include "keyseat/nn/linear.h"
#include "keyseat/nn/norm.h"

namespace keyseat_block_example {

using at::Tensor;
using keyseat::DimSymbol;
using keyseat::Option;
using keyseat::OptionLevel;
using keyseat::OptionType;
using keyseat::ParamRole;
namespace nn = keyseat::nn;

namespace {

constexpr double kNormEps = 1e-6;

struct MergerShape {
  int64_t hidden, out_hidden, merge;
  double init_std;
  int64_t merged() const { return hidden * merge * merge; }
};

keyseat::UnitSpec merger_spec(const MergerShape& shape, const std::string& name,
                              const std::string& reads, const std::string& writes) {
  keyseat::UnitSpec spec;
  spec.name = name;
  spec.rows = DimSymbol::kP;
  const auto add = [&](const char* param, std::vector<int64_t> size, ParamRole role,
                       keyseat::Init init) {
    keyseat::ParamSpec param_spec;
    param_spec.name = param;
    param_spec.shape = std::move(size);
    param_spec.role = role;
    param_spec.init = init;
    param_spec.checkpoint_name = "example." + name + "." + param;
    spec.params.push_back(std::move(param_spec));
  };
  const keyseat::Init normal{keyseat::Init::Kind::kNormal, shape.init_std};
  const keyseat::Init zeros{keyseat::Init::Kind::kZeros, 0}, ones{keyseat::Init::Kind::kOnes, 0};
  add("norm.weight", {shape.merged()}, ParamRole::kNorm, ones);
  add("norm.bias", {shape.merged()}, ParamRole::kNorm, zeros);
  add("in.weight", {shape.merged(), shape.merged()}, ParamRole::kMatrix, normal);
  add("in.bias", {shape.merged()}, ParamRole::kBias, zeros);
  add("out.weight", {shape.out_hidden, shape.merged()}, ParamRole::kMatrix, normal);
  add("out.bias", {shape.out_hidden}, ParamRole::kBias, zeros);
  add("skip.weight", {shape.out_hidden, shape.hidden}, ParamRole::kMatrix, normal);
  spec.reads = {{reads, {DimSymbol::kP, shape.hidden}, {}, true, {}, {}}};
  spec.writes = {{writes, {DimSymbol::kV, shape.out_hidden}, {}, true, {}, {}}};
  return spec;
}

class Merger final : public keyseat::Unit {
 public:
  Merger(const MergerShape& shape, keyseat::UnitSpec spec) : Unit(std::move(spec)), shape_(shape) {}

 protected:
  keyseat::Tensors forward_(const keyseat::Params& params, const keyseat::Tensors& inputs,
                            keyseat::StepContext& context) const override {
    // A region may be run again in backward: it captures by value what belongs to this call.
    const auto merge = [this, params, &context](const std::vector<Tensor>& in) {
      const Tensor& x_PC = in[0];
      const int64_t block = shape_.merge * shape_.merge;
      const int64_t visual_tokens = x_PC.size(0) / block;
      // Consecutive patches are one m x m block.
      const Tensor x_VD = x_PC.reshape({visual_tokens, shape_.merged()});
      const Tensor normed_VD = nn::layer_norm(x_VD, params.at("norm.weight"),
                                              params.at("norm.bias"), kNormEps, context.kernels());
      const Tensor wide_VD = nn::gelu_tanh(
          nn::linear(normed_VD, params.at("in.weight"), params.at("in.bias")), context.kernels());
      const Tensor mean_VC = x_PC.reshape({visual_tokens, block, shape_.hidden}).mean(1);
      return std::vector<Tensor>{
          nn::linear(wide_VD, params.at("out.weight"), params.at("out.bias")) +
          nn::linear(mean_VC, params.at("skip.weight"))};
    };
    const std::string& reads = spec().reads[0].name;
    const Tensor y_VH = context.region(keyseat::Region::kProjector, merge, {inputs.at(reads)})[0];
    return {{spec().writes[0].name, y_VH}};
  }

  keyseat::Cost cost_(const keyseat::WorkloadShape& work) const override {
    const auto merged = static_cast<double>(shape_.merged());
    const auto out = static_cast<double>(shape_.out_hidden);
    const auto hidden = static_cast<double>(shape_.hidden);
    return {2 * work.visual_tokens * (merged * (merged + out) + hidden * out),
            work.element_bytes * work.visual_tokens * (4 * merged + hidden + 2 * out)};
  }

 private:
  MergerShape shape_;
};

}  // namespace

keyseat::OptionSchema SkipProjector::options() {
  return {
      Option("hidden_size", OptionType::kInt)
          .required()
          .range(1, 1 << 24)
          .doc("Width of the vision tower."),
      Option("out_hidden_size", OptionType::kInt)
          .required()
          .range(1, 1 << 24)
          .doc("Width of the decoder."),
      Option("spatial_merge_size", OptionType::kInt)
          .defaults_to(int64_t{2})
          .range(1, 64)
          .doc("Edge, in patches, of the square that becomes one visual token."),
      Option("deepstack_features", OptionType::kInt)
          .defaults_to(int64_t{0})
          .range(0, 1024)
          .doc("How many taps the tower has; each gets a merger of its own."),
      Option("initializer_range", OptionType::kFloat)
          .defaults_to(0.02)
          .range(0, 10)
          .level(OptionLevel::kTuning)
          .doc("Standard deviation of fresh matrices."),
  };
}

SkipProjector::SkipProjector(const keyseat::Options& options, const keyseat::PluginHost&)
    : hidden_(options.get_int("hidden_size")),
      out_hidden_(options.get_int("out_hidden_size")),
      merge_(options.get_int("spatial_merge_size")),
      taps_(options.get_int("deepstack_features")),
      init_std_(options.get_float("initializer_range")) {}

std::vector<std::unique_ptr<keyseat::Unit>> SkipProjector::units() {
  const MergerShape shape{hidden_, out_hidden_, merge_, init_std_};
  std::vector<std::unique_ptr<keyseat::Unit>> units;
  for (int64_t j = 0; j < taps_; ++j) {
    const std::string number = std::to_string(j);
    keyseat::UnitSpec spec =
        merger_spec(shape, "deepstack." + number, "vision.tap." + number, "deepstack." + number);
    spec.after = "vision.tap." + number;  // directly behind the layer that writes it
    units.push_back(std::make_unique<Merger>(shape, std::move(spec)));
  }
  units.push_back(std::make_unique<Merger>(
      shape, merger_spec(shape, "merger", "vision.hidden", "vision.merged")));
  return units;
}

}  // namespace keyseat_block_example
