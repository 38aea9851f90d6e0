// One decoder layer: x += attn(norm1 x); x += mlp(norm2 x); deepstack feature j is added behind
// layer j. Attention and a dense mlp work on the rows of the context rank, with this rank's heads
// and columns; all else on own rows.
// Legend: T own rows, C rows of the context rank, H hidden, n query heads, m key/value heads, d
// head dim, I width, E experts.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include "keyseat/nn/activation.h"
#include "keyseat/nn/linear.h"
#include "keyseat/nn/moe.h"
#include "keyseat/nn/norm.h"
#include "keyseat/nn/rope.h"
#include "keyseat/nn/router_options.h"
#include "keyseat/nn/tensor_parallel.h"
#include "qwen3_moe.h"

namespace keyseat_block_qwen3_moe {

using at::Tensor;
using keyseat::DimSymbol;
using keyseat::Layout;
using keyseat::ParamRole;
using keyseat::Region;
namespace nn = keyseat::nn;

namespace {

constexpr const char* kQuery = "self_attn.q_proj.weight";

void add_experts(keyseat::UnitSpec& spec, const std::string& prefix, const DecoderConfig& config) {
  spec.top_k = config.router.top_k;
  spec.routing = nn::routing_label(config.router);
  spec.capacity_pad = config.router.capacity_pad;
  const int64_t experts = config.experts, hidden = config.hidden, width = config.expert_width;
  add_param(spec, prefix, "mlp.gate.weight", {experts, hidden}, ParamRole::kRouter, config)
      .keep_fp32 = true;
  auto& gate_up = add_param(spec, prefix, "mlp.experts.gate_up_proj", {experts, 2 * width, hidden},
                            ParamRole::kMatrix, config);
  gate_up.domain = keyseat::ParamDomain::kExpert;
  gate_up.expert_parts = {prefix + "mlp.experts.{e}.gate_proj.weight",
                          prefix + "mlp.experts.{e}.up_proj.weight"};
  gate_up.parts = {width, width};
  gate_up.split = {1, width};
  auto& down = add_param(spec, prefix, "mlp.experts.down_proj", {experts, hidden, width},
                         ParamRole::kMatrix, config);
  down.domain = keyseat::ParamDomain::kExpert;
  down.expert_parts = {prefix + "mlp.experts.{e}.down_proj.weight"};
  down.split = {2, width};
  const auto layout = config.expert_layout == "per_expert" ? keyseat::CheckpointLayout::kPerExpert
                      : config.expert_layout == "packed"
                          ? keyseat::CheckpointLayout::kPacked
                          : keyseat::CheckpointLayout::kPackedTransposed;
  for (auto& param : spec.params) {
    if (param.domain == keyseat::ParamDomain::kExpert) param.checkpoint_layout = layout;
  }
}

void add_attention(keyseat::UnitSpec& spec, const std::string& prefix,
                   const DecoderConfig& config) {
  using Otherwise = keyseat::TensorSplit::Otherwise;
  const int64_t hidden = config.hidden, head_dim = config.head_dim;
  const int64_t q = config.heads * head_dim, kv = config.kv_heads * head_dim;
  const auto add = [&](const char* name, std::vector<int64_t> shape, ParamRole role) -> auto& {
    return add_param(spec, prefix, name, std::move(shape), role, config);
  };
  add(kQuery, {q, hidden}, ParamRole::kMatrix).split = {0, config.heads};
  for (const char* name : {"self_attn.k_proj.weight", "self_attn.v_proj.weight"}) {
    add(name, {kv, hidden}, ParamRole::kMatrix).split = {0, config.kv_heads, Otherwise::kReplicate};
  }
  add("self_attn.o_proj.weight", {hidden, q}, ParamRole::kMatrix).split = {1, config.heads};
  add("self_attn.q_norm.weight", {head_dim}, ParamRole::kNorm).tensor_shares = true;
  add("self_attn.k_norm.weight", {head_dim}, ParamRole::kNorm).tensor_shares = true;
}

void add_dense(keyseat::UnitSpec& spec, const std::string& prefix, const DecoderConfig& config) {
  const int64_t hidden = config.hidden, width = config.dense_width;
  const auto add = [&](const char* name, std::vector<int64_t> shape, int split_dim) {
    add_param(spec, prefix, name, std::move(shape), ParamRole::kMatrix, config).split = {split_dim,
                                                                                         width};
  };
  add("mlp.gate_proj.weight", {width, hidden}, 0);
  add("mlp.up_proj.weight", {width, hidden}, 0);
  add("mlp.down_proj.weight", {hidden, width}, 1);
}

keyseat::UnitSpec layer_spec(const DecoderConfig& config, int64_t layer) {
  const int64_t hidden = config.hidden, half = config.head_dim / 2;
  const std::string number = std::to_string(layer);
  const std::string prefix = config.checkpoint_prefix + "layers." + number + ".";
  keyseat::UnitSpec spec;
  spec.name = "layers." + number;
  spec.layout = Layout::kRows;
  const auto add_norm = [&](const char* name) {
    add_param(spec, prefix, name, {hidden}, ParamRole::kNorm, config);
  };
  add_norm("input_layernorm.weight");
  add_attention(spec, prefix, config);
  add_norm("post_attention_layernorm.weight");
  if (config.is_moe(layer)) {
    add_experts(spec, prefix, config);
  } else {
    add_dense(spec, prefix, config);
  }

  const auto rows = Layout::kRows, context_rows = Layout::kContextRows;
  spec.reads = {{"hidden", {DimSymbol::kT, hidden}, {}, true, rows, {}},
                {"rope.cos", {DimSymbol::kT, half}, at::kFloat, false, context_rows, {}},
                {"rope.sin", {DimSymbol::kT, half}, at::kFloat, false, context_rows, {}}};
  if (layer < config.deepstack) {
    spec.reads.push_back({"deepstack." + number, {DimSymbol::kV, hidden}, {}, true, rows, {}});
    spec.reads.push_back({"visual_dst", {DimSymbol::kV}, at::kLong, false, rows, {}});
  }
  spec.writes = {{"hidden", {DimSymbol::kT, hidden}, {}, true, rows, {}}};
  if (config.is_moe(layer)) {
    spec.writes.push_back(
        {"router.stats." + number, {2, config.experts}, at::kFloat, true, rows, {}});
    spec.writes.push_back({"router.z." + number, {1}, at::kFloat, true, rows, {}});
  }
  return spec;
}

class Layer final : public keyseat::Unit {
 public:
  Layer(const DecoderConfig& config, int64_t layer)
      : Unit(layer_spec(config, layer)),
        config_(config),
        layer_(layer),
        moe_(config.is_moe(layer)) {}

 protected:
  keyseat::Tensors forward_(const keyseat::Params& params, const keyseat::Tensors& inputs,
                            keyseat::StepContext& context) const override {
    const Tensor input_TH = inputs.at("hidden");
    const Tensor mixed_TH =
        attention(params, input_TH, inputs.at("rope.cos"), inputs.at("rope.sin"), context);
    context.tap("attn", mixed_TH);
    const Tensor attended_TH = input_TH + mixed_TH;
    const Tensor normed_TH = norm(params, "post_attention_layernorm.weight", attended_TH, context);
    keyseat::Tensors outputs;
    Tensor fed_TH;
    if (moe_) {
      const nn::MoeOutput moe = nn::moe_layer(
          normed_TH, params.at("mlp.gate.weight"), params.at("mlp.experts.gate_up_proj"),
          params.at("mlp.experts.down_proj"), config_.router, context);
      fed_TH = moe.y_TH;
      outputs.set("router.stats." + std::to_string(layer_), moe.routing.stats_2E);
      outputs.set("router.z." + std::to_string(layer_), moe.routing.z_1);
    } else {
      fed_TH = dense(params, normed_TH, context);
    }
    context.tap("mlp", fed_TH);
    Tensor hidden_TH = attended_TH + fed_TH;
    context.tap("hidden", hidden_TH);
    if (layer_ < config_.deepstack) {
      hidden_TH = nn::add_rows(hidden_TH, inputs.at("visual_dst"),
                               inputs.at("deepstack." + std::to_string(layer_)));
      context.tap("hidden_deepstack", hidden_TH);
    }
    outputs.set("hidden", hidden_TH);
    return outputs;
  }

  keyseat::Cost cost_(const keyseat::WorkloadShape& shape) const override {
    const double hidden = static_cast<double>(config_.hidden),
                 head_dim = static_cast<double>(config_.head_dim);
    const double q = static_cast<double>(config_.heads) * head_dim,
                 kv = static_cast<double>(config_.kv_heads) * head_dim;
    const double width = moe_ ? static_cast<double>(config_.router.top_k * config_.expert_width)
                              : static_cast<double>(config_.dense_width);
    const double gemm = 2 * shape.tokens * hidden * (2 * q + 2 * kv + 3 * width);
    // Causal attention does half of q k^T and of the product with v.
    return {gemm + 2 * q * shape.sequence_squares,
            shape.element_bytes * shape.tokens * (6 * hidden + 4 * q + 4 * kv + 3 * width)};
  }

 private:
  Tensor norm(const keyseat::Params& params, const char* weight, const Tensor& x,
              keyseat::StepContext& context) const {
    const auto run = [this, params, weight,
                      &context](const std::vector<Tensor>& in) -> std::vector<Tensor> {
      return {nn::rms_norm(in[0], params.at(weight), config_.eps, context.kernels())};
    };
    return context.region(Region::kLayernorm, run, {x})[0];
  }

  Tensor attention(const keyseat::Params& params, const Tensor& hidden_TH, const Tensor& cos,
                   const Tensor& sin, keyseat::StepContext& context) const {
    const auto run = [this, params,
                      &context](const std::vector<Tensor>& in) -> std::vector<Tensor> {
      const Tensor normed_CH = nn::enter_split(
          norm(params, "input_layernorm.weight", in[0], context), Layout::kRows, context);
      const auto project = [&](const char* name) {
        const auto& weight = params.at(name);
        const int64_t heads = weight.value().size(0) / config_.head_dim;
        return nn::linear(normed_CH, weight).view({-1, heads, config_.head_dim});
      };
      const auto project_key = [&](const char* name) {
        const bool whole = !nn::is_split(params, name) && nn::is_split(params, kQuery);
        const Tensor heads_Cmd = project(name);
        return whole ? nn::own_key_heads(heads_Cmd, config_.heads, context) : heads_Cmd;
      };
      const std::vector<Tensor> core = {project(kQuery), project_key("self_attn.k_proj.weight"),
                                        project_key("self_attn.v_proj.weight"), in[1], in[2]};
      const auto mix = [this, params,
                        &context](const std::vector<Tensor>& qkv) -> std::vector<Tensor> {
        const nn::RopeTables rope{qkv[3], qkv[4]};
        const auto turn = [&](const Tensor& x, const char* weight) {
          const Tensor normed = nn::rms_norm(x, params.at(weight), config_.eps, context.kernels());
          return nn::apply_rope(normed, rope, context.kernels());
        };
        const double scale = 1.0 / std::sqrt(static_cast<double>(config_.head_dim));
        return {nn::row_attention(turn(qkv[0], "self_attn.q_norm.weight"),
                                  turn(qkv[1], "self_attn.k_norm.weight"), qkv[2], scale, context)};
      };
      const Tensor mixed_Cnd = context.region(Region::kCoreAttn, mix, core)[0];
      const Tensor parts_CH =
          nn::linear(mixed_Cnd.flatten(1), params.at("self_attn.o_proj.weight"));
      return {nn::leave_split(parts_CH, Layout::kRows, context)};
    };
    return context.region(Region::kAttn, run, {hidden_TH, cos, sin})[0];
  }

  Tensor dense(const keyseat::Params& params, const Tensor& normed_TH,
               keyseat::StepContext& context) const {
    const auto run = [params, &context](const std::vector<Tensor>& in) -> std::vector<Tensor> {
      const Tensor x_CH = nn::enter_split(in[0], Layout::kRows, context);
      const Tensor gate_up_C2I = at::cat({nn::linear(x_CH, params.at("mlp.gate_proj.weight")),
                                          nn::linear(x_CH, params.at("mlp.up_proj.weight"))},
                                         1);
      const Tensor parts_CH =
          nn::linear(nn::swiglu(gate_up_C2I, context.kernels()), params.at("mlp.down_proj.weight"));
      return {nn::leave_split(parts_CH, Layout::kRows, context)};
    };
    return context.region(Region::kMlp, run, {normed_TH})[0];
  }

  DecoderConfig config_;
  int64_t layer_;
  bool moe_;
};

}  // namespace

std::unique_ptr<keyseat::Unit> make_layer(const DecoderConfig& config, int64_t layer) {
  return std::make_unique<Layer>(config, layer);
}

}  // namespace keyseat_block_qwen3_moe
