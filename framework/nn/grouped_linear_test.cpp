#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include "keyseat/nn/moe.h"
#include "keyseat/status.h"
#include "nn/op_check.h"

namespace keyseat::nn {
namespace {

check::Op grouped(const std::vector<int64_t>& counts, Kernels kernels, bool on_host = true) {
  return [=](const auto& inputs, const auto& parameters) {
    return grouped_linear(inputs[0], parameters[0], at::tensor(counts, at::kLong),
                          on_host ? counts : std::vector<int64_t>(), kernels);
  };
}

int64_t total(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

}  // namespace

TEST_CASE("grouped linear: fast against naive, value and gradients") {
  const std::vector<std::vector<int64_t>> cases = {
      {3, 0, 5, 1},  // an expert without rows
      {0, 0, 9, 0},  // all rows to one
      {0, 0, 0, 0},  // no rows
      {40, 33, 1, 64},
  };
  for (const auto& counts : cases) {
    for (const int64_t tail : {0, 4}) {
      CAPTURE(total(counts));
      CAPTURE(tail);
      check::check_op({.fast = grouped(counts, Kernels::kFast),
                       .naive = grouped(counts, Kernels::kNaive),
                       .inputs = {check::random({total(counts) + tail, 12}, 1)},
                       .parameters = {check::random({4, 7, 12}, 2)},
                       .bf16_tolerance = 4e-2});
    }
  }
}

TEST_CASE("grouped linear: counts from the device") {
  const at::Tensor rows = check::random({6, 3}, 3);
  const ParamHandle weight = ParamHandle::of(check::random({3, 2, 3}, 4));
  const at::Tensor counts = at::tensor({2, 3, 1}, at::kLong);
  CHECK(grouped_linear(rows, weight, counts, {}, Kernels::kFast)
            .equal(grouped_linear(rows, weight, counts, {2, 3, 1}, Kernels::kFast)));
}

TEST_CASE("grouped linear: fp64 gradients") {
  check::check_gradient(grouped({2, 0, 3}, Kernels::kFast), {check::random({6, 3}, 5)},
                        {check::random({3, 2, 3}, 6)});
}

TEST_CASE("grouped linear: rows past the sum are never read") {
  at::Tensor rows = check::random({8, 5}, 7);
  rows.narrow(0, 6, 2).fill_(NAN);
  rows.requires_grad_();
  const at::Tensor sink = at::zeros({2, 4, 5});
  const ParamHandle weight = ParamHandle::of(check::random({2, 4, 5}, 8).requires_grad_(), sink);
  const at::Tensor y = grouped_linear(rows, weight, {}, {2, 4}, Kernels::kFast);
  CHECK(y.narrow(0, 6, 2).eq(0).all().item<bool>());
  at::Tensor dy = check::random({8, 4}, 9);
  dy.narrow(0, 6, 2).fill_(NAN);
  const auto gradients = torch::autograd::grad({y}, {rows}, {dy});
  CHECK(gradients[0].narrow(0, 6, 2).eq(0).all().item<bool>());
  CHECK(gradients[0].isfinite().all().item<bool>());
}

TEST_CASE("grouped linear: an expert without rows leaves its part of the sink alone") {
  const at::Tensor sink = at::full({3, 2, 2}, 0.25);
  const at::Tensor value = check::random({3, 2, 2}, 10).requires_grad_();
  const at::Tensor y = grouped_linear(check::random({4, 2}, 11), ParamHandle::of(value, sink), {},
                                      {3, 0, 1}, Kernels::kFast);
  y.sum().backward();
  CHECK(sink.select(0, 1).eq(0.25).all().item<bool>());
  CHECK_FALSE(sink.select(0, 0).eq(0.25).any().item<bool>());
  CHECK_FALSE(value.grad().defined());
}

TEST_CASE("grouped linear: the same twice is the same bit for bit") {
  const std::vector<int64_t> counts = {70, 3, 120, 0, 41, 9, 100, 25};
  const at::Tensor rows = check::random({total(counts), 64}, 12);
  const ParamHandle weight = ParamHandle::of(check::random({8, 48, 64}, 13));
  const at::Tensor first = grouped_linear(rows, weight, {}, counts, Kernels::kFast);
  for (int i = 0; i < 5; ++i) {
    CHECK(first.equal(grouped_linear(rows, weight, {}, counts, Kernels::kFast)));
  }
}

TEST_CASE("grouped linear: refuses what its contract excludes") {
  const at::Tensor rows = check::random({4, 3}, 14);
  const ParamHandle weight = ParamHandle::of(check::random({2, 5, 3}, 15));
  const auto call = [&](std::vector<int64_t> counts) {
    return grouped_linear(rows, weight, {}, counts, Kernels::kFast);
  };
  CHECK_THROWS_AS(call({4, 1}), Error);
  CHECK_THROWS_AS(call({4}), Error);
  CHECK_THROWS_AS(call({5, -1}), Error);
}

}  // namespace keyseat::nn
