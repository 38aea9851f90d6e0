#include "keyseat/nn/attention.h"

#include <ATen/Parallel.h>
#include <doctest/doctest.h>

#include "keyseat/status.h"
#include "nn/op_check.h"

namespace keyseat::nn {
namespace {

check::Op attention(const std::vector<int64_t>& cu_seqlens, bool causal, Kernels kernels) {
  return [=](const auto& in, const auto&) {
    const double scale = 1.0 / std::sqrt(static_cast<double>(in[0].size(2)));
    return varlen_attention(in[0], in[1], in[2], cu_seqlens, causal, scale, kernels);
  };
}

std::vector<at::Tensor> inputs_of(int64_t rows, int64_t heads, int64_t key_heads, int64_t head) {
  return {check::random({rows, heads, head}, 1), check::random({rows, key_heads, head}, 2),
          check::random({rows, key_heads, head}, 3)};
}

struct Case {
  std::vector<int64_t> cu_seqlens;
  int64_t heads, key_heads, head;
};

const std::vector<Case> kCases = {{{0, 7}, 1, 1, 8},
                                  {{0, 5, 5, 12}, 3, 3, 16},
                                  {{0, 8, 16, 24}, 2, 2, 12},
                                  {{0, 6, 12}, 4, 2, 8},
                                  {{0, 3, 20}, 6, 1, 10},
                                  {{0, 1, 2, 3}, 5, 5, 7},
                                  {{0, 130, 200}, 4, 4, 64},
                                  {{0, 96, 192}, 8, 2, 64},
                                  {{0, 0, 0}, 2, 1, 8},
                                  {{0}, 2, 2, 8},
                                  {{0, 600, 700}, 2, 2, 32},
                                  {{0, 4, 8, 13, 17}, 2, 2, 8},
                                  {{0, 33, 66, 99}, 4, 2, 20},
                                  {{0, 150, 160, 420}, 4, 2, 20},
                                  {{0, 257, 257, 385}, 3, 3, 9}};

}  // namespace

TEST_CASE("varlen_attention: fast and naive agree; causal and full, grouped heads, odd sizes") {
  for (const Case& c : kCases) {
    for (bool causal : {false, true}) {
      CAPTURE(c.cu_seqlens);
      CAPTURE(causal);
      check::check_op({.fast = attention(c.cu_seqlens, causal, Kernels::kFast),
                       .naive = attention(c.cu_seqlens, causal, Kernels::kNaive),
                       .inputs = inputs_of(c.cu_seqlens.back(), c.heads, c.key_heads, c.head),
                       .parameters = {}});
    }
  }
}

TEST_CASE("varlen_attention: flash attention where threads outnumber segments and heads") {
  const int threads = at::get_num_threads();
  at::set_num_threads(4);
  for (bool causal : {false, true}) {
    for (const Case& c :
         {Case{{0, 150}, 4, 2, 16}, Case{{0, 140}, 3, 3, 8}, Case{{0, 139, 139, 280}, 2, 1, 8}})
      check::check_op({.fast = attention(c.cu_seqlens, causal, Kernels::kFast),
                       .naive = attention(c.cu_seqlens, causal, Kernels::kNaive),
                       .inputs = inputs_of(c.cu_seqlens.back(), c.heads, c.key_heads, c.head),
                       .parameters = {}});
  }
  at::set_num_threads(threads);
}

TEST_CASE("varlen_attention: scores far apart") {
  std::vector<at::Tensor> inputs = inputs_of(300, 4, 2, 16);
  inputs[0].mul_(40);
  check::check_op({.fast = attention({0, 150, 300}, true, Kernels::kFast),
                   .naive = attention({0, 150, 300}, true, Kernels::kNaive),
                   .inputs = inputs,
                   .parameters = {},
                   .tolerance = 1e-4,
                   .bf16_tolerance = 0});
}

TEST_CASE("varlen_attention: views into fused q, k, v") {
  for (const std::vector<int64_t>& cu_seqlens :
       {std::vector<int64_t>{0, 8, 16}, std::vector<int64_t>{0, 5, 16}}) {
    const auto fused = [&](Kernels kernels) -> check::Op {
      return [=](const auto& in, const auto&) {
        const auto part = in[0].unbind(1);
        return varlen_attention(part[0], part[1], part[2], cu_seqlens, false, 0.3, kernels);
      };
    };
    check::check_op({.fast = fused(Kernels::kFast),
                     .naive = fused(Kernels::kNaive),
                     .inputs = {check::random({16, 3, 2, 8}, 1)},
                     .parameters = {}});
  }
}

TEST_CASE("varlen_attention: fp64 gradients") {
  for (Kernels kernels : {Kernels::kNaive, Kernels::kFast})
    for (bool causal : {false, true})
      check::check_gradient(attention({0, 3, 5}, causal, kernels), inputs_of(5, 4, 2, 3), {});
}

TEST_CASE("varlen_attention: a segment never sees its neighbours") {
  for (bool causal : {false, true}) {
    std::vector<at::Tensor> inputs = inputs_of(24, 4, 2, 8);
    const check::Op op = attention({0, 10, 24}, causal, Kernels::kFast);
    const at::Tensor before = op(inputs, {});
    for (at::Tensor& input : inputs) input.narrow(0, 0, 10).add_(1.5);
    const at::Tensor after = op(inputs, {});
    CHECK(before.narrow(0, 10, 14).equal(after.narrow(0, 10, 14)));
    CHECK_FALSE(before.narrow(0, 0, 10).equal(after.narrow(0, 0, 10)));
  }
}

TEST_CASE("varlen_attention: shapes and segments that do not fit are R4") {
  const std::vector<at::Tensor> inputs = inputs_of(4, 3, 2, 8);
  const auto call = [&](const at::Tensor& q, const std::vector<int64_t>& cu_seqlens) {
    return varlen_attention(q, inputs[1], inputs[2], cu_seqlens, true, 1.0, Kernels::kFast);
  };
  CHECK_THROWS_WITH_AS(call(inputs[0], {0, 4}), doctest::Contains("q [4, 3, 8]"), Error);
  const at::Tensor q = check::random({4, 2, 8}, 1);
  CHECK_THROWS_WITH_AS(call(q, {0, 3}), doctest::Contains("do not cover the 4 rows"), Error);
  CHECK_THROWS_AS(call(q, {0, 3, 2, 4}), Error);
}

}  // namespace keyseat::nn
