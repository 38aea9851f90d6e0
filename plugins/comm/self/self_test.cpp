#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include "keyseat/interfaces/comm.h"
#include "keyseat/registry.h"

namespace {

using keyseat::Code;
using keyseat::ReduceOp;

std::shared_ptr<keyseat::Comm> connected() {
  keyseat::Registry registry(keyseat::make_plugin_search({}));
  auto comm = registry.create<keyseat::Comm>("self", keyseat::Options());
  comm->connect({});
  return comm;
}

template <typename Function>
void check_error(Code code, const Function& function) {
  try {
    function();
    FAIL("no error");
  } catch (const keyseat::Error& error) {
    CHECK(error.problems().at(0).code == code);
  }
}

TEST_CASE("comm/self: collectives of one rank are copies, also of zero rows") {
  const auto comm = connected();
  keyseat::CommGroup& group = comm->group({0});
  CHECK(group.size() == 1);
  CHECK(group.rank() == 0);
  for (const int64_t rows : {5, 0}) {
    const at::Tensor input = at::arange(rows * 2, at::kFloat).view({rows, 2});
    for (int call = 0; call < 3; ++call) {
      at::Tensor output = at::zeros({rows, 2});
      if (call == 0) group.all_gather(output, input, {rows})->wait();
      if (call == 1) group.reduce_scatter(output, input, {rows})->wait();
      if (call == 2) group.all_to_all(output, input, {rows}, {rows})->wait();
      CHECK(output.equal(input));
    }
    at::Tensor reduced = input.clone();
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
      group.all_reduce(reduced, op)->wait();
    }
    group.broadcast(reduced, 0)->wait();
    group.barrier();
    CHECK(reduced.equal(input));
  }
}

TEST_CASE("comm/self: messages to oneself arrive in order and are copies") {
  const auto comm = connected();
  keyseat::CommGroup& group = comm->group({0});
  at::Tensor message = at::arange(3, at::kFloat);
  group.send(message, 0)->wait();
  message.zero_();
  group.send(message, 0)->wait();
  at::Tensor first = at::empty({3}), second = at::empty({3});
  group.receive(first, 0)->wait();
  group.receive(second, 0)->wait();
  CHECK(first.equal(at::arange(3, at::kFloat)));
  CHECK(second.equal(at::zeros({3})));
  check_error(Code::kR2Communication, [&] { group.receive(first, 0); });
}

TEST_CASE("comm/self: broken rules are R4, another world is C4") {
  const auto comm = connected();
  keyseat::CommGroup& group = comm->group({0});
  at::Tensor a = at::zeros({4, 2}), b = at::zeros({3, 2});
  check_error(Code::kR4Contract, [&] { group.all_gather(a, b, {3}); });
  check_error(Code::kR4Contract, [&] { group.all_gather(a, a.clone(), {3}); });
  check_error(Code::kR4Contract, [&] { group.all_gather(a, a.clone(), {2, 2}); });
  check_error(Code::kR4Contract, [&] { group.all_to_all(a, a.clone(), {4}, {3}); });
  check_error(Code::kR4Contract, [&] { group.all_reduce(a.t(), ReduceOp::kSum); });
  check_error(Code::kR4Contract, [&] { group.broadcast(a, 1); });
  check_error(Code::kR4Contract, [&] { group.send(a, 1); });
  check_error(Code::kR4Contract, [&] { comm->group({0, 1}); });

  keyseat::Rendezvous two;
  two.world = 2;
  CHECK(comm->validate(two).at(0).code == Code::kC4Combination);
  check_error(Code::kC4Combination, [&] { comm->connect(two); });
}

TEST_CASE("comm/self: no group before connect") {
  keyseat::Registry registry(keyseat::make_plugin_search({}));
  const auto comm = registry.create<keyseat::Comm>("self", keyseat::Options());
  check_error(Code::kR4Contract, [&] { comm->group({0}); });
}

}  // namespace
