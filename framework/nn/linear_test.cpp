#include "keyseat/nn/linear.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <doctest/doctest.h>

#include "keyseat/status.h"
#include "nn/op_check.h"

namespace keyseat::nn {
namespace {

const check::Op kLinear = [](const auto& inputs, const auto& parameters) {
  return linear(inputs[0], parameters[0], parameters.size() > 1 ? parameters[1] : ParamHandle());
};
const check::Op kNaiveLinear = [](const auto& inputs, const auto& parameters) {
  at::Tensor y = inputs[0].matmul(parameters[0].value().t());
  return parameters.size() > 1 ? y.add(parameters[1].value()) : y;
};

// Row numbers as an index of every element, for gather and scatter.
at::Tensor as_columns(const at::Tensor& index, int64_t width) {
  return index.unsqueeze(1).expand({index.numel(), width});
}

}  // namespace

TEST_CASE("linear: against matmul, with and without bias") {
  const std::vector<std::vector<int64_t>> shapes = {
      {7, 12}, {2, 3, 12}, {0, 12}, {2, 0, 12}, {1, 12}};
  for (const auto& shape : shapes) {
    CAPTURE(shape);
    const at::Tensor weight = check::random({5, 12}, 2);
    for (const std::vector<at::Tensor>& parameters :
         {std::vector<at::Tensor>{weight}, {weight, check::random({5}, 3)}}) {
      check::check_op({.fast = kLinear,
                       .naive = kNaiveLinear,
                       .inputs = {check::random(shape, 1)},
                       .parameters = parameters});
    }
  }
}

TEST_CASE("linear: fp64 gradients") {
  check::check_gradient(kLinear, {check::random({3, 4}, 1)},
                        {check::random({2, 4}, 2), check::random({2}, 3)});
}

TEST_CASE("embedding: against gather; equal ids add up") {
  const std::vector<at::Tensor> id_sets = {at::tensor({3, 0, 3, 6, 3}, at::kLong),
                                           at::empty({0}, at::kLong)};
  for (const at::Tensor& ids : id_sets) {
    check::check_op({.fast =
                         [ids](const auto&, const auto& parameters) {
                           return embedding(ids.to(parameters[0].value().device()), parameters[0]);
                         },
                     .naive =
                         [ids](const auto&, const auto& parameters) {
                           return parameters[0].value().gather(0, as_columns(ids, 130));
                         },
                     .inputs = {},
                     .parameters = {check::random({7, 130}, 4)}});
  }
}

TEST_CASE("embedding: an id outside of the table is R4") {
  const ParamHandle table = ParamHandle::of(check::random({4, 2}, 1));
  CHECK_THROWS_WITH_AS(embedding(at::tensor({0, 4}, at::kLong), table),
                       doctest::Contains("ids from 0 to 4"), Error);
  CHECK_THROWS_AS(embedding(at::tensor({-1}, at::kLong), table), Error);
}

TEST_CASE("replace_rows and add_rows: against scatter and scatter_add") {
  for (const at::Tensor& index : {at::tensor({4, 1}, at::kLong), at::empty({0}, at::kLong)}) {
    const std::vector<at::Tensor> inputs = {check::random({6, 3}, 1),
                                            check::random({index.numel(), 3}, 2)};
    const auto here = [index](const at::Tensor& x) { return index.to(x.device()); };
    const check::Op replace = [here](const auto& in, const auto&) {
      return replace_rows(in[0], here(in[0]), in[1]);
    };
    const check::Op add = [here](const auto& in, const auto&) {
      return add_rows(in[0], here(in[0]), in[1]);
    };
    check::check_op(
        {.fast = replace,
         .naive = [index](const auto& in,
                          const auto&) { return in[0].scatter(0, as_columns(index, 3), in[1]); },
         .inputs = inputs,
         .parameters = {}});
    check::check_op({.fast = add,
                     .naive =
                         [index](const auto& in, const auto&) {
                           return in[0].scatter_add(0, as_columns(index, 3), in[1]);
                         },
                     .inputs = inputs,
                     .parameters = {}});
    check::check_gradient(replace, inputs, {});
    check::check_gradient(add, inputs, {});
  }
}

}  // namespace keyseat::nn
