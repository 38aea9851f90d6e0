// Every communicator between ranks, over 2 and 4 ranks: one launch runs all cells.
#include <doctest/doctest.h>

#include "tests/comm/launched.h"

namespace keyseat::comm_test {
namespace {

void conform(const std::string& plugin, int ranks) {
  Launched launched(ranks, {"cells", plugin, "--ranks-per-node", "2"});
  const LaunchResult result = launched.wait(kLaunchLimit);
  CHECK_MESSAGE(result.status == 0, result.output);
  CHECK(result.has(" checks, 0 failed"));
}

TEST_CASE("comm/gloo: conformance over 2 ranks") { conform("gloo", 2); }
TEST_CASE("comm/gloo: conformance over 4 ranks") { conform("gloo", 4); }
TEST_CASE("comm/shm: conformance over 2 ranks") { conform("shm", 2); }
TEST_CASE("comm/shm: conformance over 4 ranks") { conform("shm", 4); }

// The shared memory has no name, so nothing is left whenever a process ends.
TEST_CASE("comm/shm: no name in /dev/shm while it runs") {
  const auto before = shared_memory_names();
  Launched launched(2, {"spin", "shm"});
  REQUIRE(launched.wait_for_output("spinning", kLaunchLimit));
  CHECK(shared_memory_names() == before);
}

}  // namespace
}  // namespace keyseat::comm_test
