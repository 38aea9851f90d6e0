#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include "keyseat/nn/moe.h"
#include "keyseat/status.h"
#include "nn/op_check.h"

namespace keyseat::nn {
namespace {

// Two choices per token; the third token goes nowhere, the fourth only once, and row 5 is nobody's.
const std::vector<int64_t> kSource = {1, 0, 3, 0, 1, -1};
const std::vector<int64_t> kSlot = {3, 1, 0, 4, -1, -1, 2, -1};

struct Moves {
  at::Tensor source_M, slot_TK;
};

Moves moves_on(const at::Device device) {
  return {at::tensor(kSource, at::kLong).to(device),
          at::tensor(kSlot, at::kLong).view({4, 2}).to(device)};
}

const check::Op kPermute = [](const auto& inputs, const auto&) {
  const Moves moves = moves_on(inputs[0].device());
  return permute_rows(inputs[0], moves.source_M, moves.slot_TK);
};
const check::Op kUnpermute = [](const auto& inputs, const auto&) {
  const Moves moves = moves_on(inputs[0].device());
  return unpermute_rows(inputs[0], moves.source_M, moves.slot_TK);
};
const check::Op kWeights = [](const auto& inputs, const auto&) {
  return permute_weights(inputs[0], moves_on(inputs[0].device()).slot_TK, 6);
};

// The moves as a matrix [M, T] of zeros and ones.
at::Tensor matrix(at::ScalarType type) {
  at::Tensor result = at::zeros({6, 4}, type);
  for (size_t m = 0; m < kSource.size(); ++m) {
    if (kSource[m] >= 0) result.select(0, static_cast<int64_t>(m)).select(0, kSource[m]).fill_(1);
  }
  return result;
}

const check::Op kPermuteOracle = [](const auto& inputs, const auto&) {
  return matrix(inputs[0].scalar_type()).matmul(inputs[0]);
};
const check::Op kUnpermuteOracle = [](const auto& inputs, const auto&) {
  return matrix(inputs[0].scalar_type()).t().matmul(inputs[0]);
};

}  // namespace

TEST_CASE("permute and unpermute: against a product with the permutation matrix") {
  for (const int64_t width : {1, 16, 77}) {
    CAPTURE(width);
    check::check_op({.fast = kPermute,
                     .naive = kPermuteOracle,
                     .inputs = {check::random({4, width}, 1)},
                     .parameters = {}});
    check::check_op({.fast = kUnpermute,
                     .naive = kUnpermuteOracle,
                     .inputs = {check::random({6, width}, 2)},
                     .parameters = {}});
  }
}

TEST_CASE("permute and unpermute: fp64 gradients") {
  check::check_gradient(kPermute, {check::random({4, 3}, 3)}, {});
  check::check_gradient(kUnpermute, {check::random({6, 3}, 4)}, {});
  check::check_gradient(kWeights, {check::random({4, 2}, 5)}, {});
}

TEST_CASE("permute: weights follow their rows") {
  const at::Tensor weight = at::tensor({1, 2, 3, 4, 5, 6, 7, 8}, at::kFloat).view({4, 2});
  const at::Tensor rows = permute_weights(weight, moves_on(at::kCPU).slot_TK, 6);
  CHECK(rows.equal(at::tensor({3, 2, 7, 1, 4, 0}, at::kFloat)));
  CHECK((permute_weights(weight.to(at::kMeta), moves_on(at::kMeta).slot_TK, 6).sizes() ==
         at::IntArrayRef{6}));
}

TEST_CASE("unpermute: bf16 rows are summed in fp32 and rounded once") {
  // 1 + 2^-8 + 2^-8: in bf16 each addition alone would be lost.
  const at::Tensor rows = at::tensor({1.0, 0.00390625, 0.00390625}, at::kFloat)
                              .view({3, 1})
                              .expand({3, 40})
                              .to(at::kBFloat16);
  const at::Tensor source = at::tensor({0, 0, 0}, at::kLong);
  const at::Tensor slot = at::tensor({0, 1, 2}, at::kLong).view({1, 3});
  const at::Tensor sum = unpermute_rows(rows, source, slot);
  CHECK(sum.to(at::kFloat).eq(1.0078125).all().item<bool>());
}

TEST_CASE("permute: no tokens, no rows, no choices") {
  const at::Tensor none = at::zeros({0}, at::kLong);
  const at::Tensor x = at::zeros({0, 5}).requires_grad_();
  const at::Tensor rows = permute_rows(x, none, at::zeros({0, 2}, at::kLong));
  CHECK((rows.sizes() == at::IntArrayRef{0, 5}));
  const at::Tensor y = unpermute_rows(rows, none, at::zeros({0, 2}, at::kLong));
  y.sum().backward();
  CHECK((x.grad().sizes() == at::IntArrayRef{0, 5}));
  // Tokens that all go nowhere get zeros.
  const at::Tensor nowhere = at::zeros({3, 2}, at::kLong).fill_(-1);
  CHECK(unpermute_rows(at::zeros({0, 5}), none, nowhere).equal(at::zeros({3, 5})));
  CHECK(permute_weights(at::zeros({3, 2}), nowhere, 0).size(0) == 0);
}

TEST_CASE("permute: refuses tables that do not fit") {
  const Moves moves = moves_on(at::kCPU);
  CHECK_THROWS_AS(permute_rows(at::zeros({3, 2}), moves.source_M, moves.slot_TK), Error);
  CHECK_THROWS_AS(unpermute_rows(at::zeros({5, 2}), moves.source_M, moves.slot_TK), Error);
  CHECK_THROWS_AS(permute_rows(at::zeros({4, 2}), moves.source_M.to(at::kInt), moves.slot_TK),
                  Error);
}

}  // namespace keyseat::nn
