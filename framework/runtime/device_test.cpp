#include "runtime/device.h"

#include <doctest/doctest.h>

TEST_CASE("device: the CPU needs nothing") {
  CHECK(keyseat::open_device(keyseat::DeviceKind::kCpu, 0) == c10::Device(c10::kCPU));
}

TEST_CASE("device: cuda on a machine without a GPU is refused with R1 and the reason") {
  try {
    const c10::Device device = keyseat::open_device(keyseat::DeviceKind::kCuda, 0);
    CHECK(device.is_cuda());  // there is a GPU here
  } catch (const keyseat::Error& error) {
    REQUIRE(error.problems().size() == 1);
    CHECK(error.problems()[0].code == keyseat::Code::kR1Cuda);
    CHECK(!error.problems()[0].why.empty());
  }
}
