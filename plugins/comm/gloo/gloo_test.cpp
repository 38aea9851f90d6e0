// What needs no launch; collectives between processes are in tests/comm.
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "keyseat/interfaces/comm.h"
#include "keyseat/registry.h"

namespace {

using keyseat::Code;
using keyseat::CommChannel;
using keyseat::Rendezvous;

std::shared_ptr<keyseat::Comm> make_gloo(std::map<std::string, keyseat::OptionValue> values = {}) {
  static keyseat::Registry registry(keyseat::make_plugin_search({}));
  keyseat::Problems problems;
  const auto plugin = registry.load("comm", "gloo", problems);
  REQUIRE(plugin != nullptr);
  const auto options = keyseat::resolve_options(plugin->options(), values, "test", problems);
  REQUIRE(problems.empty());
  return registry.create<keyseat::Comm>("gloo", options);
}

Rendezvous rendezvous_of(int64_t rank, c10d::Store* store = nullptr) {
  Rendezvous rendezvous;
  rendezvous.rank = rendezvous.local_rank = rank;
  rendezvous.world = rendezvous.local_world = 2;
  rendezvous.store = store;
  rendezvous.timeout_seconds = 20;
  return rendezvous;
}

TEST_CASE("comm/gloo: one rank and devices are refused (C4)") {
  const auto comm = make_gloo();
  CHECK(comm->validate(rendezvous_of(0)).empty());
  Rendezvous one = rendezvous_of(0);
  one.world = 1;
  CHECK(comm->validate(one).at(0).code == Code::kC4Combination);
  Rendezvous device = rendezvous_of(0);
  device.device = at::kCUDA;
  CHECK(comm->validate(device).at(0).text().find("comm/nccl") != std::string::npos);
}

TEST_CASE("comm/gloo: an interface that is not there is R2") {
  const auto comm = make_gloo({{"interface", std::string("no-such-interface")}});
  const auto store = c10::make_intrusive<c10d::HashStore>();
  try {
    comm->connect(rendezvous_of(0, store.get()));
    FAIL("no error");
  } catch (const keyseat::Error& error) {
    CHECK(error.problems().at(0).code == Code::kR2Communication);
    CHECK(error.problems().at(0).remedy.find("comm.options.interface") != std::string::npos);
  }
}

TEST_CASE("comm/gloo: a wait that ends early leaves the operation as it is") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::atomic<int> right{0};
  std::promise<void> waited;  // rank 1 comes only when rank 0 has given up waiting for it
  const auto rank_main = [&](int64_t rank) {
    const auto comm = make_gloo();
    comm->connect(rendezvous_of(rank, store.get()));
    keyseat::CommGroup& group = comm->group({0, 1}, CommChannel::kCompute);
    group.barrier();
    at::Tensor sum = at::arange(5, at::kFloat), message = at::arange(5, at::kFloat);
    if (rank == 1) waited.get_future().wait_for(std::chrono::seconds(20));
    auto reduce = group.all_reduce(sum, keyseat::ReduceOp::kSum);
    auto move = rank == 0 ? group.receive(message.zero_(), 1) : group.send(message, 0);
    if (rank == 0 && !move->wait_for(0.01) && !reduce->wait_for(0.01)) ++right;
    if (rank == 0) waited.set_value();
    reduce->wait();
    move->wait();
    right += sum.equal(at::arange(5, at::kFloat).mul(2)) ? 1 : 0;
    right += message.equal(at::arange(5, at::kFloat)) ? 1 : 0;
  };
  std::thread other([&] { rank_main(1); });
  rank_main(0);
  other.join();
  CHECK(right == 5);
}

TEST_CASE("comm/gloo: no group before connect") {
  try {
    make_gloo()->group({0, 1});
    FAIL("no error");
  } catch (const keyseat::Error& error) {
    CHECK(error.problems().at(0).code == Code::kR4Contract);
  }
}

}  // namespace
