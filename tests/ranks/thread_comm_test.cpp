#include "tests/ranks/thread_comm.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include <chrono>
#include <thread>

#include "keyseat/status.h"

using keyseat::Code;
using keyseat::CommGroup;
using keyseat::Error;
using keyseat::ReduceOp;
using keyseat::test::LinkBytes;
using keyseat::test::ThreadComm;
using keyseat::test::ThreadWorld;

namespace {

using Ranks = std::vector<int64_t>;

// The error that run() ends with.
std::string error_of(ThreadWorld world, Code code,
                     const std::function<void(int64_t, ThreadComm&)>& rank_main) {
  try {
    world.run(rank_main);
  } catch (const Error& error) {
    CHECK((error.problems().at(0).code == code));
    return error.what();
  }
  FAIL("no error");
  return {};
}

at::Tensor rows(int64_t rank, int64_t count) { return at::full({count, 2}, rank + 1.0); }

}  // namespace

TEST_CASE("thread ranks: collectives, also with parts of zero rows") {
  ThreadWorld({.world = 3}).run([](int64_t rank, ThreadComm& comm) {
    CommGroup& group = comm.group({0, 1, 2});
    CHECK(group.size() == 3);
    CHECK(group.rank() == rank);
    const Ranks counts{2, 0, 1};
    at::Tensor gathered = at::empty({3, 2});
    group.all_gather(gathered, rows(rank, counts[rank]), counts)->wait();
    CHECK(gathered.select(1, 0).equal(at::tensor({1.F, 1.F, 3.F})));

    at::Tensor scattered = at::empty({counts[rank], 2});
    group
        .reduce_scatter(scattered,
                        at::arange(6, at::kFloat).view({3, 2}).mul(static_cast<double>(rank + 1)),
                        counts)
        ->wait();
    if (rank == 2) CHECK(scattered.equal(at::tensor({24.F, 30.F}).view({1, 2})));

    // Rank r sends r rows to everybody.
    at::Tensor exchanged = at::empty({3, 2});
    group.all_to_all(exchanged, rows(rank, 3 * rank), {0, 1, 2}, {rank, rank, rank})->wait();
    CHECK(exchanged.select(1, 1).equal(at::tensor({2.F, 3.F, 3.F})));

    at::Tensor sum = at::full({2}, rank, at::kLong), largest = sum.clone(), least = sum.clone();
    group.all_reduce(sum, ReduceOp::kSum)->wait();
    group.all_reduce(largest, ReduceOp::kMax)->wait();
    group.all_reduce(least, ReduceOp::kMin)->wait();
    CHECK(sum.eq(3).all().item<bool>());
    CHECK(largest.eq(2).all().item<bool>());
    CHECK(least.eq(0).all().item<bool>());

    at::Tensor told = at::full({1}, rank);
    group.broadcast(told, 1)->wait();
    CHECK(told.item<double>() == 1);
    group.barrier();
  });
}

TEST_CASE("thread ranks: bf16 is summed in fp32 and rounded once") {
  ThreadWorld({.world = 4}).run([](int64_t rank, ThreadComm& comm) {
    // 256 + 1 + 1 + 1 in bf16 stays 256 where every step is rounded.
    at::Tensor value = at::full({1}, rank == 0 ? 256.0 : 1.0).to(at::kBFloat16);
    comm.group({0, 1, 2, 3}).all_reduce(value, ReduceOp::kSum)->wait();
    CHECK(value.item<float>() == 260);  // 259 rounded to 8 bits
  });
}

TEST_CASE("thread ranks: messages, several in flight, in the order of their sends") {
  ThreadWorld({.world = 2}).run([](int64_t rank, ThreadComm& comm) {
    CommGroup& group = comm.group({0, 1});
    at::Tensor first = at::empty({2}), second = at::empty({0});
    auto send = group.send(at::full({2}, rank + 1.0), 1 - rank);
    auto send_nothing = group.send(at::empty({0}), 1 - rank);
    auto receive = group.receive(first, 1 - rank);
    auto receive_nothing = group.receive(second, 1 - rank);
    CHECK(first.isnan().all().item<bool>());  // nothing is there before wait()
    for (auto* work : {&send, &send_nothing, &receive, &receive_nothing}) (*work)->wait();
    CHECK(first.eq(2.0 - rank).all().item<bool>());
  });
}

TEST_CASE("thread ranks: results appear with wait(), in any order") {
  ThreadWorld({.world = 2}).run([](int64_t rank, ThreadComm& comm) {
    CommGroup& group = comm.group({0, 1});
    at::Tensor one = at::empty({2, 1}), two = at::empty({2, 1});
    at::Tensor input = at::full({1, 1}, static_cast<double>(rank));
    auto a = group.all_gather(one, input, {1, 1});
    auto b = group.all_gather(two, input, {1, 1});
    CHECK(one.isnan().all().item<bool>());
    b->wait();
    a->wait();
    CHECK(one.equal(two));
  });
}

TEST_CASE("thread ranks: calls that do not belong together end the run, with both sides") {
  const ThreadWorld world({.world = 2});
  std::string text = error_of(world, Code::kR2Communication, [](int64_t rank, ThreadComm& comm) {
    at::Tensor tensor = at::zeros({2 + rank});
    comm.group({0, 1}).all_reduce(tensor, ReduceOp::kSum)->wait();
  });
  CHECK(text.find("all_reduce of Float [2]") != std::string::npos);
  CHECK(text.find("all_reduce of Float [3]") != std::string::npos);
  error_of(world, Code::kR2Communication, [](int64_t rank, ThreadComm& comm) {
    at::Tensor tensor = at::zeros({2}, rank == 0 ? at::kFloat : at::kBFloat16);
    comm.group({0, 1}).all_reduce(tensor, ReduceOp::kSum)->wait();
  });
  error_of(world, Code::kR2Communication, [](int64_t rank, ThreadComm& comm) {
    at::Tensor tensor = at::zeros({2});
    CommGroup& group = comm.group({0, 1});
    (rank == 0 ? group.all_reduce(tensor, ReduceOp::kSum) : group.broadcast(tensor, 0))->wait();
  });
  error_of(world, Code::kR2Communication, [](int64_t rank, ThreadComm& comm) {
    at::Tensor output = at::empty({2});  // rank 0 sends one row to rank 1, which expects two
    const Ranks sent = rank == 0 ? Ranks{1, 1} : Ranks{0, 0};
    const Ranks received = rank == 0 ? Ranks{1, 1} : Ranks{2, 0};
    comm.group({0, 1}).all_to_all(output, at::zeros({sent[0] + sent[1]}), received, sent)->wait();
  });
}

TEST_CASE("thread ranks: a rank that stays away is named after the time-out") {
  const auto begin = std::chrono::steady_clock::now();
  const std::string text = error_of(ThreadWorld({.world = 3, .timeout_seconds = 0.2}),
                                    Code::kR2Communication, [](int64_t rank, ThreadComm& comm) {
                                      if (rank == 1) return;
                                      comm.group({0, 1, 2}).barrier();
                                    });
  CHECK(text.find("ranks [1] did not come") != std::string::npos);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
}

TEST_CASE("thread ranks: the failure of one rank releases the others and is what run throws") {
  CHECK_THROWS_AS(ThreadWorld({.world = 2}).run([](int64_t rank, ThreadComm& comm) {
    if (rank == 1) throw std::out_of_range("mine");
    comm.group({0, 1}).barrier();
  }),
                  std::out_of_range);
}

TEST_CASE("thread ranks: a Work without wait, a call without peers, and crossed groups are found") {
  CHECK(error_of(ThreadWorld({.world = 2}), Code::kR2Communication, [](int64_t, ThreadComm& comm) {
          at::Tensor tensor = at::zeros({1});
          comm.group({0, 1}).all_reduce(tensor, ReduceOp::kSum);
        }).find("did not wait") != std::string::npos);
  CHECK(error_of(ThreadWorld({.world = 2}), Code::kR2Communication,
                 [](int64_t rank, ThreadComm& comm) {
                   at::Tensor tensor = at::zeros({1});
                   if (rank == 0) comm.group({0, 1}).send(tensor, 1)->wait();
                   if (rank == 1) return;
                 })
            .size() > 0);
  CHECK(error_of(ThreadWorld({.world = 2}), Code::kR2Communication,
                 [](int64_t rank, ThreadComm& comm) {
                   at::Tensor x = at::zeros({1}), y = at::zeros({1});
                   CommGroup &one = comm.group({0, 1}), &two = comm.group({1, 0});
                   CommGroup &first = rank == 0 ? one : two, &last = rank == 0 ? two : one;
                   auto a = first.all_reduce(x, ReduceOp::kSum);
                   auto b = last.all_reduce(y, ReduceOp::kSum);
                   a->wait();
                   b->wait();
                 })
            .find("different orders") != std::string::npos);
}

TEST_CASE("thread ranks: broken rules of one call are R4") {
  ThreadWorld({.world = 1}).run([](int64_t, ThreadComm& comm) {
    CommGroup& group = comm.group({0});
    at::Tensor a = at::zeros({4, 2}), b = at::zeros({3, 2});
    CHECK_THROWS_AS(group.all_gather(a, b, {3}), Error);
    CHECK_THROWS_AS(group.all_to_all(a, a.clone(), {4}, {3}), Error);
    CHECK_THROWS_AS(group.all_reduce(a.t(), ReduceOp::kSum), Error);
    CHECK_THROWS_AS(group.broadcast(a, 1), Error);
    CHECK_THROWS_AS(comm.group({1}), Error);
  });
}

TEST_CASE("thread ranks: bytes are counted by link") {
  ThreadWorld({.world = 4, .ranks_per_node = 2}).run([](int64_t rank, ThreadComm& comm) {
    CommGroup& group = comm.group({0, 1, 2, 3});
    at::Tensor all = at::empty({4, 2});
    group.all_gather(all, rows(rank, 1), {1, 1, 1, 1})->wait();
    CHECK((comm.take_sent() == LinkBytes{8, 16}));
    at::Tensor one = at::empty({1, 2});
    group.reduce_scatter(one, all, {1, 1, 1, 1})->wait();
    CHECK((comm.take_sent() == LinkBytes{8, 16}));
    // Everything to rank 3.
    at::Tensor output = at::empty({rank == 3 ? 4 : 0, 2});
    const Ranks received = rank == 3 ? Ranks{1, 1, 1, 1} : Ranks{0, 0, 0, 0};
    group.all_to_all(output, one, received, {0, 0, 0, 1})->wait();
    const LinkBytes expected[] = {{0, 8}, {0, 8}, {8, 0}, {0, 0}};
    CHECK((comm.take_sent() == expected[rank]));
  });
}
