// Bytes by link: what is predicted, what is sent, and what the definitions ask for. That measured
// and predicted bytes are equal is checked in every case of conformance_test.cpp.
#include <ATen/ops/ones.h>
#include <doctest/doctest.h>

#include "nn/testing.h"
#include "tests/dispatchers/layer.h"

using namespace keyseat;
using namespace keyseat::test;

namespace {

DispatcherWork bench_work() {  // two nodes of two ranks, k = 8 of 32 experts, h = 1024, fp32
  DispatcherWork work;
  work.facts = {32, 8, 1024, false};
  work.tokens = 512;
  return work;
}

const DispatcherLayout kTwoNodes{.name = "2 x 2", .expert = 4, .ranks_per_node = 2};

bool close(double a, double b, double share) { return std::abs(a - b) <= share * std::abs(b); }

}  // namespace

TEST_CASE("traffic: hybrid_ep follows the formula, exactly for a given routing") {
  DispatcherWork work = bench_work();
  for (uint64_t rank = 0; rank < 4; ++rank) {
    work.topk_index.push_back(random_choices(512, 8, 32, rank));
  }
  // Tokens of rank 0 that need an expert of the other node.
  const double rows = static_cast<double>(work.topk_index[0].ge(16).any(1).sum().item<int64_t>());
  const auto traffic = plugin_dispatcher("hybrid_ep")()->traffic(work, kTwoNodes.mesh(0));
  CHECK(traffic.dispatch.inter == rows * (1024 * 4 + 4 * 32 / 2));
  CHECK(traffic.combine_backward.inter == rows * 1024 * 4);
  CHECK(traffic.plan.inter == 512 * 32 + 2 * 8);  // the map, and T to the two ranks over there
}

TEST_CASE("traffic: expectations are within 2 % of a uniform routing, and of the definitions") {
  const DispatcherWork expected = bench_work();
  // Of 512 tokens a rank the rows of a sample scatter by 1.4 %, of these by 0.35 %.
  DispatcherWork many = expected;
  many.tokens = 8192;
  DispatcherWork given = many;
  for (uint64_t rank = 0; rank < 4; ++rank) {
    given.topk_index.push_back(random_choices(many.tokens, 8, 32, 10 + rank));
  }
  for (const char* name : {"allgather", "alltoall", "hybrid_ep"}) {
    CAPTURE(name);
    const auto dispatcher = plugin_dispatcher(name)();
    const Mesh mesh = kTwoNodes.mesh(2);
    const LinkTraffic a = dispatcher->traffic(many, mesh).total();
    const LinkTraffic b = dispatcher->traffic(given, mesh).total();
    CHECK(close(a.inter, b.inter, 0.02));
    CHECK(close(a.intra, b.intra, 0.02));
  }
  // Remote rows per token at two nodes: 4 against 0.9988, so the bytes differ by almost 4.
  const double alltoall =
      plugin_dispatcher("alltoall")()->traffic(expected, kTwoNodes.mesh(0)).total().inter;
  const double hybrid =
      plugin_dispatcher("hybrid_ep")()->traffic(expected, kTwoNodes.mesh(0)).total().inter;
  CHECK(close(alltoall, 2 * 512 * 4.0 * (4096 + 4) + 2 * 512 * 4.0 * 4096 + 2 * 8 * 8, 1e-9));
  const double rows = 512 * (1 - 12870.0 / 10518300.0);
  CHECK(close(hybrid, 2 * rows * (4096 + 64) + 2 * rows * 4096 + 512 * 32, 0.001));
  CHECK(alltoall / hybrid > 3.8);
}

TEST_CASE("traffic: remote rows per token of the two-level exchange, 128 experts, top-8") {
  // (nodes, remote rows per token) by hand from 1 - C(128 - 128/N, 8) / C(128, 8).
  const std::pair<int64_t, double> table[] = {{2, 0.997}, {4, 2.722}, {8, 4.672}, {16, 6.184}};
  for (const auto& [nodes, remote] : table) {
    DispatcherWork work;
    work.facts = {128, 8, 4096, false};
    work.tokens = 1;
    work.element_bytes = 2;
    const DispatcherLayout layout{.name = "", .expert = nodes * 2, .ranks_per_node = 2};
    const auto traffic = plugin_dispatcher("hybrid_ep")()->traffic(work, layout.mesh(0));
    CHECK(close(traffic.combine.inter, remote * 4096 * 2, 0.001));
    const auto plain = plugin_dispatcher("alltoall")()->traffic(work, layout.mesh(0));
    const double rows = 8 * (1 - 1.0 / static_cast<double>(nodes));
    CHECK(close(plain.combine.inter, rows * 4096 * 2, 1e-9));
  }
}

TEST_CASE("traffic: bounded hybrid_ep sends the same bytes whatever the routing") {
  const auto dispatcher =
      plugin_dispatcher("hybrid_ep", {{"mode", std::string("bounded")}, {"rows_factor", 1.5}})();
  DispatcherWork work = bench_work();
  const LinkTraffic expected = dispatcher->traffic(work, kTwoNodes.mesh(0)).total();
  work.topk_index.assign(4, random_choices(512, 8, 9, 3));  // nothing for the second node
  const LinkTraffic given = dispatcher->traffic(work, kTwoNodes.mesh(0)).total();
  CHECK(expected.inter == given.inter);
  CHECK(expected.intra == given.intra);
}
