#include "train/workload.h"

#include <doctest/doctest.h>

#include "train/test_units.h"

using namespace keyseat;
using namespace keyseat::testing;

namespace {

// Every unit of the test chain costs one FLOP per token.
train::StepFlops flops_of(const std::vector<std::string>& freeze) {
  Problems problems;
  const Chain chain = Chain::build(vision_language_blocks(), freeze, problems);
  REQUIRE(problems_text(problems) == "");
  WorkloadShape shape;
  shape.tokens = 1;
  return train::step_flops(chain, shape);
}

int64_t units_of(const std::vector<std::string>& blocks) {
  Problems problems;
  const Chain chain = Chain::build(vision_language_blocks(), {}, problems);
  return std::count_if(chain.units().begin(), chain.units().end(), [&](const ChainUnit& unit) {
    return std::find(blocks.begin(), blocks.end(), unit.block) != blocks.end();
  });
}

}  // namespace

TEST_CASE("workload: the padding tail of a row counts nowhere") {
  RowFacts facts;
  facts.counts.tokens = 7;
  facts.counts.padding = 5;
  facts.counts.patches = 20;
  facts.cu_seqlens = {0, 3, 7, 12};
  facts.vision_cu_seqlens = {0, 4, 20};
  const WorkloadShape shape = train::workload_shape(facts, 4);
  CHECK(shape.tokens == 7);
  CHECK(shape.sequence_squares == 9 + 16);
  CHECK(shape.frame_squares == 16 + 256);
  facts = {};
  CHECK(train::workload_shape(facts, 4).sequence_squares == 0);
}

TEST_CASE("workload: counted FLOPs do not depend on what is frozen, executed ones do") {
  const double units = static_cast<double>(units_of({"vision", "projector", "decoder"}));
  const double vision = static_cast<double>(units_of({"vision"}));
  const train::StepFlops all = flops_of({});
  CHECK(all.counted == 3 * units);
  CHECK(all.executed < all.counted);  // what reads only the batch has no input gradient
  CHECK(all.executed >= 2 * units);
  const train::StepFlops frozen = flops_of({"vision"});
  CHECK(frozen.counted == all.counted);
  CHECK(frozen.executed <= all.executed - vision);
  CHECK(flops_of({"vision", "projector", "decoder"}).executed == units);
}
