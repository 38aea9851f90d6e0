#include "train/grad_norm.h"

#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>
#include <hwy/targets.h>

#include "train/grad_norm_kernel.h"

using namespace keyseat;

TEST_CASE("gradient norm: every instruction set gives the bits of the oracle") {
  const at::Tensor x = at::randn({70001});
  const double expected = sum_of_squares_chunk_naive(x.data_ptr<float>(), 70001);
  const auto targets = hwy::SupportedTargets();
  for (int64_t bit = 1; bit > 0 && bit <= targets; bit <<= 1) {
    if ((targets & bit) == 0) continue;
    hwy::SetSupportedTargetsForTest(bit);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    CHECK(sum_of_squares_chunk(x.data_ptr<float>(), 70001) == expected);
    for (size_t count : {0, 1, 15, 16, 17, 33}) {
      CHECK(sum_of_squares_chunk(x.data_ptr<float>(), count) ==
            sum_of_squares_chunk_naive(x.data_ptr<float>(), count));
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST_CASE("gradient norm: the same for any number of threads") {
  const std::vector<at::Tensor> tensors{at::randn({1000003}), at::zeros({0}), at::randn({17})};
  const int threads = at::get_num_threads();
  const double sum = sum_of_squares(tensors);
  at::set_num_threads(1);
  CHECK(sum_of_squares(tensors) == sum);
  at::set_num_threads(threads);
  double expected = 0;
  for (const at::Tensor& tensor : tensors) {
    expected += tensor.to(at::kDouble).square().sum().item<double>();
  }
  CHECK(sum == doctest::Approx(expected).epsilon(1e-12));
}
