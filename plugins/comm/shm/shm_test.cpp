// What needs no launch; collectives between processes are in tests/comm.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "keyseat/interfaces/comm.h"
#include "keyseat/registry.h"

namespace {

using keyseat::Code;
using keyseat::CommChannel;
using keyseat::Rendezvous;

std::shared_ptr<keyseat::Comm> make_shm(int64_t ring_bytes = 65536) {
  static keyseat::Registry registry(keyseat::make_plugin_search({}));
  keyseat::Problems problems;
  const auto plugin = registry.load("comm", "shm", problems);
  REQUIRE(plugin != nullptr);
  const keyseat::Options options =
      keyseat::resolve_options(plugin->options(), {{"ring_bytes", ring_bytes}}, "test", problems);
  REQUIRE(problems.empty());
  return registry.create<keyseat::Comm>("shm", options);
}

Rendezvous rendezvous_of(int64_t rank, int64_t world, c10d::Store* store = nullptr) {
  Rendezvous rendezvous;
  rendezvous.rank = rendezvous.local_rank = rank;
  rendezvous.world = rendezvous.local_world = world;
  rendezvous.store = store;
  return rendezvous;
}

TEST_CASE("comm/shm: one rank, several hosts and devices are refused (C4)") {
  const auto comm = make_shm();
  CHECK(comm->validate(rendezvous_of(0, 2)).empty());
  CHECK(comm->validate(rendezvous_of(0, 1)).at(0).code == Code::kC4Combination);
  Rendezvous hosts = rendezvous_of(0, 4);
  hosts.hosts = 2;
  hosts.local_world = 2;
  const auto problems = comm->validate(hosts);
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].code == Code::kC4Combination);
  CHECK(problems[0].text().find("comm/gloo") != std::string::npos);
  CHECK_THROWS_AS(comm->connect(hosts), keyseat::Error);
  Rendezvous device = rendezvous_of(0, 2);
  device.device = at::kCUDA;
  CHECK(comm->validate(device).at(0).text().find("comm/nccl") != std::string::npos);
}

TEST_CASE("comm/shm: a ring has to consist of whole lines") {
  keyseat::Registry registry(keyseat::make_plugin_search({}));
  keyseat::Problems problems;
  const auto plugin = registry.load("comm", "shm", problems);
  REQUIRE(plugin != nullptr);
  const auto options = keyseat::resolve_options(plugin->options(), {{"ring_bytes", int64_t{65537}}},
                                                "test", problems);
  REQUIRE(plugin->validate(options).size() == 1);
}

// Two ranks as threads, with rings far smaller than the messages.
TEST_CASE("comm/shm: streams wrap around their ring and keep their order") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  constexpr int64_t kRows = 100003;
  std::atomic<int> right{0};
  const auto rank_main = [&](int64_t rank) {
    const auto comm = make_shm();
    comm->connect(rendezvous_of(rank, 2, store.get()));
    keyseat::CommGroup& group = comm->group({0, 1}, CommChannel::kCompute);
    const at::Tensor own = at::arange(kRows, at::kFloat).add(static_cast<double>(rank));
    at::Tensor theirs = at::zeros({kRows}), sum = own.clone(), small = at::full({3}, 1.0f);
    at::Tensor gathered = at::zeros({2 * kRows});
    auto receive = group.receive(theirs, 1 - rank);
    auto send = group.send(own, 1 - rank);
    auto reduce = group.all_reduce(sum, keyseat::ReduceOp::kSum);
    auto gather = group.all_gather(gathered, own, {kRows, kRows});
    auto last = group.all_reduce(small, keyseat::ReduceOp::kSum);
    last->wait();
    gather->wait();
    reduce->wait();
    send->wait();
    receive->wait();
    group.barrier();
    const at::Tensor base = at::arange(kRows, at::kFloat);
    right += theirs.equal(base.add(static_cast<double>(1 - rank))) ? 1 : 0;
    right += sum.equal(base.mul(2).add(1)) ? 1 : 0;
    right += gathered.narrow(0, (1 - rank) * kRows, kRows).equal(theirs) ? 1 : 0;
    right += small.equal(at::full({3}, 2.0f)) ? 1 : 0;
  };
  std::thread other([&] { rank_main(1); });
  rank_main(0);
  other.join();
  CHECK(right == 8);
}

TEST_CASE("comm/shm: no group before connect") {
  try {
    make_shm()->group({0, 1});
    FAIL("no error");
  } catch (const keyseat::Error& error) {
    CHECK(error.problems().at(0).code == Code::kR4Contract);
  }
}

}  // namespace
