#include "tools/bench/ops_cases.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>

#include "keyseat/nn/activation.h"
#include "keyseat/nn/attention.h"
#include "keyseat/nn/linear.h"
#include "keyseat/nn/norm.h"
#include "keyseat/nn/rope.h"

namespace keyseat::bench {
namespace {

constexpr Kernels kFast = Kernels::kFast;

at::Tensor input(at::IntArrayRef shape) { return at::randn(shape).requires_grad_(); }

ParamHandle parameter(at::IntArrayRef shape) {
  return ParamHandle::of(at::randn(shape).mul_(0.02).requires_grad_(), at::zeros(shape));
}

std::string text(at::IntArrayRef shape) { return fmt::format("{}", fmt::join(shape, "x")); }

OpCase linear_case(const std::string& name, int64_t rows, int64_t in, int64_t out) {
  return {name,
          text({rows, in, out}),
          {input({rows, in})},
          {parameter({out, in})},
          [](const OpCase& c) { return nn::linear(c.inputs[0], c.parameters[0]); },
          [](const OpCase& c) { return at::linear(c.inputs[0], c.parameters[0].value()); }};
}

OpCase rms_norm_case(const std::string& name, at::IntArrayRef shape) {
  return {name,
          text(shape),
          {input(shape)},
          {parameter({shape.back()})},
          [](const OpCase& c) { return nn::rms_norm(c.inputs[0], c.parameters[0], 1e-6, kFast); },
          [](const OpCase& c) {
            const at::Tensor& weight = c.parameters[0].value();
            return at::rms_norm(c.inputs[0], weight.sizes(), weight, 1e-6);
          }};
}

OpCase layer_norm_case(at::IntArrayRef shape) {
  return {"layer_norm",
          text(shape),
          {input(shape)},
          {parameter({shape.back()}), parameter({shape.back()})},
          [](const OpCase& c) {
            return nn::layer_norm(c.inputs[0], c.parameters[0], c.parameters[1], 1e-6, kFast);
          },
          [](const OpCase& c) {
            const at::Tensor& weight = c.parameters[0].value();
            return at::layer_norm(c.inputs[0], weight.sizes(), weight, c.parameters[1].value(),
                                  1e-6);
          }};
}

OpCase rope_case(at::IntArrayRef shape) {
  const at::Tensor angles = at::randn({shape[0], shape[2] / 2});
  const nn::RopeTables tables{angles.cos(), angles.sin()};
  const auto whole = [](const at::Tensor& half) { return at::cat({half, half}, 1).unsqueeze(1); };
  return {"apply_rope",
          text(shape),
          {input(shape)},
          {},
          [tables](const OpCase& c) { return nn::apply_rope(c.inputs[0], tables, kFast); },
          [cos = whole(tables.cos), sin = whole(tables.sin)](const OpCase& c) {
            const at::Tensor& x = c.inputs[0];
            const auto halves = x.chunk(2, -1);
            return x.mul(cos).add(at::cat({halves[1].neg(), halves[0]}, -1).mul(sin));
          }};
}

// `count` segments of equal length, which LibTorch takes as one padded batch.
OpCase attention_case(const std::string& name, int64_t count, int64_t length, int64_t heads,
                      int64_t key_heads, int64_t head, bool causal) {
  std::vector<int64_t> cu_seqlens;
  for (int64_t i = 0; i <= count; ++i) cu_seqlens.push_back(i * length);
  const double scale = 1.0 / std::sqrt(static_cast<double>(head));
  const int64_t rows = count * length;
  return {
      name,
      fmt::format("{} segments of {}, {}/{} heads of {}", count, length, heads, key_heads, head),
      {input({rows, heads, head}), input({rows, key_heads, head}), input({rows, key_heads, head})},
      {},
      [=](const OpCase& c) {
        return nn::varlen_attention(c.inputs[0], c.inputs[1], c.inputs[2], cu_seqlens, causal,
                                    scale, kFast);
      },
      [=](const OpCase& c) {
        const auto batch = [&](size_t i) {
          return c.inputs[i].unflatten(0, {count, length}).transpose(1, 2);
        };
        return at::scaled_dot_product_attention(batch(0), batch(1), batch(2), {}, 0.0, causal,
                                                scale, heads != key_heads)
            .transpose(1, 2)
            .reshape({rows, heads, head});
      }};
}

OpCase swiglu_case(int64_t rows, int64_t width) {
  return {"weighted_swiglu",
          text({rows, width}),
          {input({rows, 2 * width}), input({rows})},
          {},
          [](const OpCase& c) { return nn::weighted_swiglu(c.inputs[0], c.inputs[1], kFast); },
          [](const OpCase& c) {
            const auto halves = c.inputs[0].chunk(2, -1);
            return at::silu(halves[0]).mul(halves[1]).mul(c.inputs[1].unsqueeze(1));
          }};
}

OpCase gelu_case(const std::string& name, at::IntArrayRef shape,
                 at::Tensor (*function)(const at::Tensor&, Kernels), const char* approximate) {
  return {name,
          text(shape),
          {input(shape)},
          {},
          [function](const OpCase& c) { return function(c.inputs[0], kFast); },
          [approximate](const OpCase& c) { return at::gelu(c.inputs[0], approximate); }};
}

OpCase embedding_case(int64_t rows, int64_t vocabulary, int64_t hidden) {
  const at::Tensor ids = at::randint(vocabulary, {rows}, at::kLong);
  return {"embedding",
          text({rows, vocabulary, hidden}),
          {},
          {parameter({vocabulary, hidden})},
          [ids](const OpCase& c) { return nn::embedding(ids, c.parameters[0]); },
          [ids](const OpCase& c) { return at::embedding(c.parameters[0].value(), ids); }};
}

}  // namespace

std::vector<OpCase> op_cases() {
  return {linear_case("linear (q_proj)", 960, 512, 512),
          linear_case("linear (fc1)", 1024, 384, 1536),
          rms_norm_case("rms_norm", {960, 512}),
          rms_norm_case("rms_norm (heads)", {960, 8, 64}),
          layer_norm_case({1024, 384}),
          rope_case({960, 8, 64}),
          attention_case("attention (text)", 2, 480, 8, 2, 64, true),
          attention_case("attention (vision)", 4, 256, 6, 6, 64, false),
          swiglu_case(3840, 256),
          gelu_case("gelu_tanh", {1024, 1536}, nn::gelu_tanh, "tanh"),
          gelu_case("gelu_erf", {256, 1536}, nn::gelu_erf, "none"),
          embedding_case(960, 32768, 512)};
}

}  // namespace keyseat::bench
