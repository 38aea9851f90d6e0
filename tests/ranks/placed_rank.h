// A strategy placed on one rank of a world whose ranks are threads.
#pragma once

#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include "tests/ranks/layout_run.h"
#include "train/model_fixture.h"

namespace keyseat::test {

// Options of strategy/fsdp: no neighbours are merged, and what is not gathered reads NaN.
inline const testing::Values kStrict = {{"min_bytes", int64_t{0}}, {"poison", true}};

struct PlacedRank {
  PlacedRank(const char* plugin, const testing::Values& options, const StrategyFacts& facts,
             const Chain& chain, Comm& comm)
      : strategy(testing::make_plugin<Strategy>(plugin, options)) {
    Problems problems;
    mesh =
        Mesh::build(strategy->degrees(facts.world), facts.world, facts.rank, facts.world, problems);
    REQUIRE(problems_text(problems) == "");
    strategy->place(facts, chain, mesh, comm);
  }
  std::shared_ptr<Strategy> strategy;
  Mesh mesh;
};

inline StrategyFacts facts_of(int64_t rank, int64_t world, at::ScalarType compute = at::kFloat) {
  StrategyFacts facts;
  facts.rank = rank;
  facts.world = facts.ranks_per_node = world;
  facts.seed = 3;
  facts.compute_dtype = compute;
  return facts;
}

// Masters begin as those of `single`, a placed strategy of one process; masters and states that are
// written are read again. The same calls on every rank.
inline void check_round_trip(Strategy& strategy, Strategy& single, const Chain& chain) {
  strategy.shards(2);
  for (int unit = 0; unit < chain.size(); ++unit) {
    const std::vector<std::string>& names = chain.units()[unit].param_names;
    for (int param = 0; param < static_cast<int>(names.size()); ++param) {
      INFO(names[param]);
      const at::Tensor expected = single.read_master(unit, param);
      CHECK(at::equal(strategy.read_master(unit, param), expected));
      const at::Tensor other = expected.add(0.25);
      strategy.write_master(unit, param, other);
      CHECK(at::equal(strategy.read_master(unit, param), other));
      strategy.write_state(unit, param, 1, other);
      CHECK(at::equal(strategy.read_state(unit, param, 1), other));
      CHECK(strategy.read_state(unit, param, 0).abs().max().item<float>() == 0);
      strategy.write_master(unit, param, expected);
    }
  }
}

}  // namespace keyseat::test
