// A communicator in a world of one rank, where every collective has a known answer.
#include "keyseat/interfaces/comm.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "sdk/conformance/subject.h"

namespace keyseat::conformance {
namespace {

constexpr int64_t kRows = 5, kColumns = 3;

at::Tensor sequence(int64_t rows, at::ScalarType dtype) {
  return at::arange(rows * kColumns, at::kFloat).view({rows, kColumns}).to(dtype);
}

void check_group(CommGroup& group, int64_t rows, at::ScalarType dtype) {
  const at::Tensor input = sequence(rows, dtype);
  const auto blank = [&] { return at::full({rows, kColumns}, -1, at::kFloat).to(dtype); };
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
    const at::Tensor reduced = input.clone();
    group.all_reduce(reduced, op)->wait();
    expect_equal("all_reduce of one rank", reduced, input);
  }
  const at::Tensor sent = input.clone();
  group.broadcast(sent, 0)->wait();
  expect_equal("broadcast of one rank", sent, input);
  at::Tensor output = blank();
  group.all_gather(output, input, {rows})->wait();
  expect_equal("all_gather of one rank", output, input);
  output = blank();
  group.reduce_scatter(output, input, {rows})->wait();
  expect_equal("reduce_scatter of one rank", output, input);
  output = blank();
  group.all_to_all(output, input, {rows}, {rows})->wait();
  expect_equal("all_to_all of one rank", output, input);
}

}  // namespace

void comm_cases(const Subject& subject, Cases& cases) {
  const auto connected = [&] {
    auto comm = subject.make<Comm>();
    const Problems problems = comm->validate({});
    if (!problems.empty()) skip("it does not serve one rank: " + problems_text(problems));
    comm->connect({});
    return comm;
  };
  cases.run("group: one rank, and the same group again", [&] {
    const auto comm = connected();
    CommGroup& group = comm->group({0});
    expect(group.size() == 1 && group.rank() == 0, "the group is not rank 0 of 1");
    expect(comm->group({0}).size() == 1, "asked again, the group is another one");
    group.barrier();
  });
  for (const int64_t rows : {kRows, int64_t{1}, int64_t{0}}) {
    cases.run(fmt::format("collectives: {} rows of fp32, bf16 and int64", rows), [&] {
      const auto comm = connected();
      for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kLong}) {
        check_group(comm->group({0}), rows, dtype);
      }
    });
  }
  cases.run("collectives: many in a row", [&] {
    const auto comm = connected();
    for (int i = 0; i < 100; ++i) check_group(comm->group({0}), kRows, at::kFloat);
  });
  cases.run("group: none before the ranks are connected", [&] {
    const auto comm = subject.make<Comm>();
    expect_refused("a group of a communicator that is not connected", [&] { comm->group({0}); });
  });
}

}  // namespace keyseat::conformance
