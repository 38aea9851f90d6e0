#include "comm/recorded_comm.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include "comm/activity.h"
#include "comm/world.h"

namespace keyseat::comm {
namespace {

class NothingInFlight final : public Work {
 public:
  bool wait_for(double /*seconds*/) override { return true; }
};

// Does nothing, and counts how often it is asked.
class CountingGroup final : public CommGroup {
 public:
  int64_t calls = 0;
  int64_t size() const override { return 2; }
  int64_t rank() const override { return 1; }
  std::unique_ptr<Work> all_reduce(at::Tensor, ReduceOp) override { return begun(); }
  std::unique_ptr<Work> broadcast(at::Tensor, int64_t) override { return begun(); }
  std::unique_ptr<Work> all_gather(at::Tensor, at::Tensor, std::vector<int64_t>) override {
    return begun();
  }
  std::unique_ptr<Work> reduce_scatter(at::Tensor, at::Tensor, std::vector<int64_t>) override {
    return begun();
  }
  std::unique_ptr<Work> all_to_all(at::Tensor, at::Tensor, std::vector<int64_t>,
                                   std::vector<int64_t>) override {
    return begun();
  }
  std::unique_ptr<Work> send(at::Tensor, int64_t) override { return begun(); }
  std::unique_ptr<Work> receive(at::Tensor, int64_t) override { return begun(); }
  std::unique_ptr<Work> begin_barrier() override { return begun(); }

 private:
  std::unique_ptr<Work> begun() {
    ++calls;
    return std::make_unique<NothingInFlight>();
  }
};

class CountingComm final : public Comm {
 public:
  CountingGroup made;
  void connect(const Rendezvous&) override {}
  CommGroup& group(const std::vector<int64_t>&, CommChannel) override { return made; }
};

struct Fixture {
  std::shared_ptr<CountingComm> inner = std::make_shared<CountingComm>();
  Activity activity;
  RecordedComm comm{inner, {1, false, nullptr, &activity}};
  Fixture() {
    Rendezvous rendezvous;
    rendezvous.rank = 1;
    rendezvous.world = 4;
    comm.connect(rendezvous);
    comm.keep_records();
  }
};

template <typename Function>
void refused(const std::string& text, const Function& function) {
  try {
    function();
    FAIL("no error: " << text);
  } catch (const Error& error) {
    CHECK(error.problems().at(0).code == Code::kR4Contract);
    CHECK_MESSAGE(error.problems().at(0).text().find(text) != std::string::npos,
                  error.problems().at(0).text());
  }
}

TEST_CASE("recorded comm: a call gets a ticket, its unit and its bytes") {
  Fixture fixture;
  CommGroup& group = fixture.comm.group({0, 1});
  fixture.activity.set_unit("decoder.layers.2 forward");
  at::Tensor output = at::zeros({5, 3}), input = at::zeros({2, 3});
  group.all_gather(output, input, {3, 2})->wait();
  group.barrier();
  CHECK(fixture.inner->made.calls == 2);
  REQUIRE(fixture.comm.records().size() == 2);
  const CallRecord& record = fixture.comm.records()[0];
  CHECK(record.text() ==
        "#1 all_gather of ranks [0, 1], rows of 12 bytes (Float): 3, 2, in decoder.layers.2 "
        "forward");
  CHECK(fixture.comm.records()[1].ticket == 2);
  CHECK(fixture.comm.traffic().sent_in_all().inter == 24);
  CHECK(fixture.comm.traffic().received_in_all().inter == 36);
  CHECK(fixture.activity.state().call.starts_with("#2 barrier"));
}

TEST_CASE("recorded comm: broken rules are R4 before anything is sent") {
  Fixture fixture;
  CommGroup& group = fixture.comm.group({0, 1});
  at::Tensor a = at::zeros({4, 2}), b = at::zeros({3, 2});
  refused("counts [3] do not describe", [&] { group.all_gather(a, b, {3}); });
  refused("this rank gives 3 rows, the counts say 2", [&] { group.all_gather(a, b, {2, 2}); });
  refused("counts [-1, 5]", [&] { group.all_gather(a, b, {-1, 5}); });
  refused("this rank takes 3 rows", [&] { group.reduce_scatter(b, a, {2, 2}); });
  refused("expects", [&] { group.all_to_all(a, b, {1, 3}, {1, 2}); });
  refused("not contiguous", [&] { group.all_reduce(a.t(), ReduceOp::kSum); });
  refused("no dimension 0", [&] { group.all_reduce(at::zeros({}), ReduceOp::kSum); });
  refused("undefined", [&] { group.broadcast({}, 0); });
  refused("differ", [&] { group.all_gather(a, at::zeros({2, 3}), {2, 2}); });
  refused("differ", [&] { group.all_gather(a, at::zeros({2, 2}, at::kLong), {2, 2}); });
  refused("rank 2 is not in a group of 2", [&] { group.broadcast(a, 2); });
  refused("a message to oneself", [&] { group.send(a, 1); });
  refused("asked for a group", [&] { fixture.comm.group({0, 2}); });
  refused("asked for a group", [&] { fixture.comm.group({1, 1}); });
  refused("asked for a group", [&] { fixture.comm.group({1, 9}); });
  CHECK(fixture.inner->made.calls == 0);
}

TEST_CASE("recorded comm: a group of one rank is served here") {
  Fixture fixture;
  CommGroup& alone = fixture.comm.group({1});
  at::Tensor output = at::zeros({4}), input = at::arange(4, at::kFloat);
  alone.all_gather(output, input, {4})->wait();
  CHECK(output.equal(input));
  output.zero_();
  alone.all_to_all(output, input, {4}, {4})->wait();
  CHECK(output.equal(input));
  alone.all_reduce(output, ReduceOp::kMax)->wait();
  alone.barrier();
  CHECK(fixture.inner->made.calls == 0);
  CHECK(fixture.comm.traffic().sent_in_all().total() == 0);
}

TEST_CASE("world: one process meets nobody") {
  World world(LaunchEnvironment(), 1);
  world.agree("configuration", {"a"});
  CHECK(world.size() == 1);
  CHECK(world.leads());
  CHECK(world.monitor() == nullptr);
  CHECK(world.rendezvous(at::kCPU).store == nullptr);
}

TEST_CASE("world: the difference of two configurations shows both sides") {
  CHECK(difference("rank 0", {"a = 1", "b = 2"}, "rank 3", {"b = 2", "a = 4", "c = 5"}) ==
        "  rank 0: a = 1\n  rank 3: a = 4\n  rank 3: c = 5");
  CHECK(difference("rank 0", {"a"}, "rank 1", {"a"}).empty());
}

}  // namespace
}  // namespace keyseat::comm
