#include "keyseat/version.h"

#include <ATen/ops/ones.h>
#include <doctest/doctest.h>

TEST_CASE("version names the framework and the LibTorch it was built against") {
  CHECK(std::string(keyseat::version()) == "0.1.0");
  CHECK(std::string(keyseat::libtorch_version()) == "2.11.0");
}

TEST_CASE("LibTorch is loaded and computes") {
  const at::Tensor ones_23 = at::ones({2, 3});
  CHECK(ones_23.sum().item<float>() == 6.0F);
}
