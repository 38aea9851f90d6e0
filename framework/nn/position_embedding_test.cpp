#include "keyseat/nn/position_embedding.h"

#include <doctest/doctest.h>

#include "nn/op_check.h"

namespace keyseat::nn {
namespace {

check::Op interpolate(const PositionTaps& taps, Kernels kernels) {
  return [=](const auto&, const auto& parameters) {
    return interpolate_positions(parameters[0], taps, kernels);
  };
}

}  // namespace

TEST_CASE("position_taps: align_corners, merge-block order, weights add up to one") {
  const PositionTaps taps = position_taps({2, 4, 2}, 2, 5);
  CHECK((taps.index_4P.sizes() == at::IntArrayRef({4, 16})));
  check::check_close(taps.weight_4P.sum(0), at::Tensor(taps.weight_4P.sum(0)).fill_(1), 1e-6);
  // Patch 2: y = 1 of 4 rows lies at 4/3 of 5 grid lines, x = 0.
  CHECK(taps.index_4P[0][2].item<int64_t>() == 5);
  CHECK(taps.index_4P[2][2].item<int64_t>() == 10);
  CHECK(taps.weight_4P[0][2].item<float>() == doctest::Approx(2.0 / 3.0));
  CHECK(taps.weight_4P[2][2].item<float>() == doctest::Approx(1.0 / 3.0));
  // The last corner is the last grid point, whose upper tap is clamped.
  CHECK(taps.index_4P[3][7].item<int64_t>() == 24);
  // Every frame has the same taps.
  CHECK(taps.index_4P.narrow(1, 0, 8).equal(taps.index_4P.narrow(1, 8, 8)));
  // A grid as large as the image is taken as it is.
  const PositionTaps same = position_taps({1, 4, 4}, 1, 4);
  check::check_close(same.weight_4P.select(0, 0), same.weight_4P.select(0, 0).clone().fill_(1), 0);
  CHECK(position_taps({}, 2, 5).index_4P.size(1) == 0);
}

TEST_CASE("interpolate_positions: fast and naive agree") {
  for (const std::vector<int64_t>& grid :
       {std::vector<int64_t>{1, 4, 6, 2, 2, 2}, std::vector<int64_t>{}}) {
    const PositionTaps taps = position_taps(grid, 2, 3);
    check::check_op({.fast = interpolate(taps, Kernels::kFast),
                     .naive = interpolate(taps, Kernels::kNaive),
                     .inputs = {},
                     .parameters = {check::random({9, 10}, 1)}});
  }
}

TEST_CASE("interpolate_positions: fp64 gradients") {
  for (Kernels kernels : {Kernels::kNaive, Kernels::kFast})
    check::check_gradient(interpolate(position_taps({1, 2, 4}, 2, 3), kernels), {},
                          {check::random({9, 2}, 1)});
}

}  // namespace keyseat::nn
