// A strategy placed on one rank of a world whose ranks are threads.
#pragma once

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

}  // namespace keyseat::test
