#include "keyseat/nn/cross_entropy.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include "keyseat/status.h"
#include "nn/cross_entropy_chunks.h"
#include "nn/op_check.h"

namespace keyseat::nn {
namespace {

check::Op loss(const at::Tensor& labels_T, Kernels kernels) {
  return [=](const auto& inputs, const auto& parameters) {
    return linear_cross_entropy(inputs[0], parameters[0], labels_T.to(inputs[0].device()), kernels);
  };
}

// Labels below `vocabulary`, every third ignored.
at::Tensor labels(int64_t rows, int64_t vocabulary) {
  std::vector<int64_t> values;
  for (int64_t row = 0; row < rows; ++row) {
    values.push_back(row % 3 == 1 ? -100 : row * 7 % vocabulary);
  }
  return at::tensor(values, at::kLong);
}

}  // namespace

TEST_CASE("cross-entropy: fast against naive, value and gradients") {
  // 700 rows are several chunks; vocabularies end inside a vector.
  for (const auto& [rows, vocabulary] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 9}, {1, 9}, {10, 129}, {700, 37}}) {
    CAPTURE(rows);
    const at::Tensor labels_T = labels(rows, vocabulary);
    check::OpCase op_case{.fast = loss(labels_T, Kernels::kFast),
                          .naive = loss(labels_T, Kernels::kNaive),
                          .inputs = {check::random({rows, 16}, 1)},
                          .parameters = {check::random({vocabulary, 16}, 2)},
                          .bf16_tolerance = 0};
    check::check_op(op_case);
  }
}

TEST_CASE("cross-entropy: bf16 against fp32; losses stay fp32") {
  const at::Tensor labels_T = labels(50, 5000);
  const at::Tensor x = check::random({50, 16}, 3).to(at::kBFloat16).requires_grad_();
  const at::Tensor weight = check::random({5000, 16}, 4).to(at::kBFloat16).requires_grad_();
  const at::Tensor sink = at::zeros({5000, 16});
  const at::Tensor wide_x = x.detach().to(at::kFloat).requires_grad_();
  const at::Tensor wide_weight = weight.detach().to(at::kFloat).requires_grad_();
  const at::Tensor sum =
      linear_cross_entropy(x, ParamHandle::of(weight, sink), labels_T, Kernels::kFast);
  const at::Tensor expected =
      linear_cross_entropy(wide_x, ParamHandle::of(wide_weight), labels_T, Kernels::kNaive);
  CHECK((sum.scalar_type() == at::kFloat));
  check::check_close(sum.detach(), expected.detach(), 1e-5);
  sum.backward();
  expected.backward();
  CHECK((x.grad().scalar_type() == at::kBFloat16));
  check::check_close(x.grad(), wide_x.grad(), 1e-2);
  check::check_close(sink, wide_weight.grad(), 1e-4);
}

TEST_CASE("cross-entropy: fp64 gradients") {
  for (const Kernels kernels : {Kernels::kFast, Kernels::kNaive}) {
    check::check_gradient(loss(labels(5, 6), kernels), {check::random({5, 3}, 5)},
                          {check::random({6, 3}, 6)});
  }
}

TEST_CASE("cross-entropy: no supervised row costs nothing and gives zero gradients") {
  const at::Tensor labels_T = at::full({4}, -100, at::kLong);
  const at::Tensor x = check::random({4, 8}, 7).requires_grad_();
  const at::Tensor weight = check::random({5, 8}, 8).requires_grad_();
  at::Tensor per_token;
  const at::Tensor sum =
      linear_cross_entropy(x, ParamHandle::of(weight), labels_T, Kernels::kFast, &per_token);
  CHECK(sum.item<float>() == 0);
  CHECK(per_token.equal(at::zeros({4})));
  sum.backward();
  CHECK(x.grad().eq(0).all().item<bool>());
  CHECK(weight.grad().eq(0).all().item<bool>());
}

TEST_CASE("cross-entropy: the loss of every row, with and without gradients") {
  const at::Tensor labels_T = labels(300, 50);
  const at::Tensor x = check::random({300, 8}, 9);
  const ParamHandle weight = ParamHandle::of(check::random({50, 8}, 10).requires_grad_());
  at::Tensor fast, naive, without;
  linear_cross_entropy(x, weight, labels_T, Kernels::kFast, &fast);
  linear_cross_entropy(x, weight, labels_T, Kernels::kNaive, &naive);
  const at::NoGradGuard guard;
  const at::Tensor sum = linear_cross_entropy(x, weight, labels_T, Kernels::kFast, &without);
  check::check_close(fast, naive, 1e-5);
  CHECK(fast.equal(without));
  CHECK(fast.masked_select(labels_T.lt(0)).eq(0).all().item<bool>());
  check::check_close(sum, naive.sum().reshape({1}), 1e-5);
}

TEST_CASE("cross-entropy: backward scales by the gradient that comes, and may run twice") {
  const at::Tensor labels_T = labels(6, 9);
  const at::Tensor x = check::random({6, 4}, 11).requires_grad_();
  const at::Tensor sink = at::zeros({9, 4});
  const at::Tensor weight = check::random({9, 4}, 12).requires_grad_();
  const at::Tensor sum =
      linear_cross_entropy(x, ParamHandle::of(weight, sink), labels_T, Kernels::kFast);
  const auto scale = [](double value) { return at::full({1}, value); };
  const auto once = torch::autograd::grad({sum}, {x, weight}, {scale(1)}, true, false, true);
  const at::Tensor sink_once = sink.clone();
  const auto half = torch::autograd::grad({sum}, {x, weight}, {scale(-0.5)}, false, false, true);
  check::check_close(half[0], once[0].mul(-0.5), 1e-6);
  check::check_close(sink, sink_once.mul(0.5), 1e-6);
}

TEST_CASE("cross-entropy: logits far apart and equal neither overflow nor vanish") {
  const at::Tensor x = at::tensor({200.0, -200.0, 0.0}, at::kFloat).view({3, 1});
  const ParamHandle weight = ParamHandle::of(at::tensor({1.0, -1.0, 0.5}, at::kFloat).view({3, 1}));
  at::Tensor per_token;
  linear_cross_entropy(x, weight, at::tensor({0, 0, 2}, at::kLong), Kernels::kFast, &per_token);
  check::check_close(per_token, at::tensor({0.0, 400.0, std::log(3.0)}, at::kFloat), 1e-6);
}

TEST_CASE("cross-entropy: refuses labels outside the vocabulary, and shapes that do not fit") {
  const ParamHandle weight = ParamHandle::of(check::random({5, 4}, 13));
  const at::Tensor x = check::random({2, 4}, 14);
  const auto call = [&](const at::Tensor& labels_T) {
    return linear_cross_entropy(x, weight, labels_T, Kernels::kFast);
  };
  CHECK_THROWS_AS(call(at::tensor({0, 5}, at::kLong)), Error);
  CHECK_THROWS_AS(call(at::tensor({0, 1, 2}, at::kLong)), Error);
  CHECK_THROWS_AS(call(at::tensor({0, 1}, at::kInt)), Error);
}

}  // namespace keyseat::nn
