// What needs no GPU.
#include <doctest/doctest.h>

#include "keyseat/interfaces/comm.h"
#include "keyseat/registry.h"
#include "tests/skip.h"

namespace {

TEST_CASE("comm/nccl: a CPU is refused (C4), one GPU is not") {
  keyseat::Registry registry(keyseat::make_plugin_search({}));
  keyseat::Problems problems;
  if (registry.load("comm", "nccl", problems) == nullptr) {
    REQUIRE(!problems.empty());
    KEYSEAT_SKIP("comm/nccl is not built, or cannot be loaded without a GPU driver: " +
                 problems[0].text());
    return;
  }
  const auto comm = registry.create<keyseat::Comm>("nccl", keyseat::Options());
  keyseat::Rendezvous rendezvous;
  rendezvous.device = at::kCUDA;
  CHECK(comm->validate(rendezvous).empty());
  rendezvous.world = 2;
  CHECK(comm->validate(rendezvous).empty());
  rendezvous.device = at::kCPU;
  CHECK(comm->validate(rendezvous).at(0).code == keyseat::Code::kC4Combination);
  CHECK(comm->validate(rendezvous).at(0).text().find("comm/shm") != std::string::npos);
}

}  // namespace
