#include "keyseat/random.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

using namespace keyseat;

TEST_CASE("random: normal numbers depend on seed and place only") {
  const uint64_t seed = derive_seed(1, "decoder.layers.0.q_proj");
  const at::Tensor whole = at::empty({100003});
  fill_normal(whole, seed, 0.02);
  const at::Tensor part = at::empty({5001});
  fill_normal(part, seed, 0.02, 777);
  CHECK(at::equal(part, whole.narrow(0, 777, 5001)));
  at::set_num_threads(1);
  fill_normal(part, seed, 0.02, 40000);
  CHECK(at::equal(part, whole.narrow(0, 40000, 5001)));
  fill_normal(part, derive_seed(1, "decoder.layers.0.k_proj"), 0.02, 0);
  CHECK_FALSE(at::equal(part, whole.narrow(0, 0, 5001)));
  CHECK(derive_seed(2, "a") != derive_seed(1, "a"));
}

TEST_CASE("random: moments of the normal distribution") {
  const at::Tensor x = at::empty({1 << 20});
  fill_normal(x, derive_seed(3, "moments"), 1.0);
  const at::Tensor wide = x.to(at::kDouble);
  CHECK(std::abs(wide.mean().item<double>()) < 5e-3);
  CHECK(std::abs(wide.pow(2).mean().item<double>() - 1) < 5e-3);
  CHECK(std::abs(wide.pow(3).mean().item<double>()) < 2e-2);
  CHECK(std::abs(wide.pow(4).mean().item<double>() - 3) < 5e-2);
  CHECK(wide.isfinite().all().item<bool>());
}
