// Splits, losses and ties that a layout cannot have.
#include "keyseat/sharding/check_cuts.h"

#include <doctest/doctest.h>

#include "plugin/plugin_fixture.h"
#include "train/test_units.h"

using namespace keyseat;
using keyseat::testing::check_problem;

namespace {

using Otherwise = TensorSplit::Otherwise;

ParamSpec with_split(TensorSplit split, std::vector<int64_t> parts = {}, const char* name = "w",
                     std::vector<int64_t> shape = {8, 6}) {
  ParamSpec spec = testing::param(name, std::move(shape));
  spec.split = split;
  spec.parts = std::move(parts);
  return spec;
}

UnitSpec rows_unit(const char* name, std::vector<ParamSpec> params, Layout layout = Layout::kRows) {
  UnitSpec unit = testing::unit_spec(
      name, std::move(params), {testing::spec("tokens", {DimSymbol::kT}, at::kLong)},
      {testing::spec(std::string("loss.") + name, {Dim(1)}, at::kFloat, "one")});
  unit.layout = unit.writes[0].layout = layout;
  return unit;
}

Problems problems_with(std::vector<UnitSpec> units, const MeshDegrees& degrees) {
  std::vector<testing::FunctionBlock::Part> parts;
  for (UnitSpec& unit : units) parts.push_back({std::move(unit), {}});
  Problems problems;
  const Chain chain = Chain::build({testing::block("b", std::move(parts))}, {}, problems);
  const OptionSchema schema{Option("tensor", OptionType::kInt).defaults_to(int64_t{1}),
                            Option("context", OptionType::kInt).defaults_to(int64_t{1}),
                            Option("expert_tensor", OptionType::kInt).defaults_to(int64_t{1})};
  const Options options = resolve_options(schema, {}, "test", problems);
  REQUIRE(problems_text(problems) == "");
  return sharding::check_cuts(options, degrees, chain);
}

const MeshDegrees kTensor{.tensor = 2}, kContext{.context = 2}, kSlices{.expert_tensor = 2};

}  // namespace

TEST_CASE("cut: a split that is none is an error of the block, whatever the degrees") {
  for (const ParamSpec& param : {with_split({2, 4}), with_split({0, 0}), with_split({0, 3}),
                                 with_split({0, 2}, {4, 6}), with_split({0, 4}, {2, 6})}) {
    check_problem(problems_with({rows_unit("u", {param})}, {}), Code::kR4Contract,
                  "b.u of block/b: w [8, 6] cannot be split");
  }
  ParamSpec experts = with_split({0, 8});
  experts.domain = ParamDomain::kExpert;
  check_problem(problems_with({rows_unit("u", {experts})}, {}), Code::kR4Contract,
                "along dimension 0");
  CHECK(problems_with({rows_unit("u", {with_split({0, 4}, {4, 4})})}, kTensor).empty());
}

TEST_CASE("cut: degrees that cut nothing, or what cannot be cut") {
  check_problem(problems_with({rows_unit("u", {testing::param("w", {8, 6})})}, kTensor),
                Code::kC4Combination, "tensor is 2, but no parameter of the model can be cut");
  ParamSpec experts = testing::param("w", {4, 8, 6});
  experts.domain = ParamDomain::kExpert;
  check_problem(problems_with({rows_unit("u", {experts})}, kSlices), Code::kC4Combination,
                "b.u.w cannot be cut over expert_tensor 2");
  experts.split = {1, 4};
  experts.parts = {4, 4};
  CHECK(problems_with({rows_unit("u", {experts})}, kSlices).empty());
}

TEST_CASE("cut: a loss out of whole rows would count once per rank") {
  const ParamSpec param = with_split({0, 8});
  const UnitSpec whole = rows_unit("u", {param}, Layout::kWhole);
  check_problem(problems_with({whole}, kTensor), Code::kC4Combination,
                "b.u writes \"loss.u\" out of whole rows, on each of the 2 ranks of tensor 2 x "
                "context 1");
  check_problem(problems_with({whole}, kContext), Code::kC4Combination, "tensor 1 x context 2");
  CHECK(problems_with({whole}, {}).empty());
  UnitSpec same_sum = rows_unit("u", {param});
  same_sum.writes[0].layout = Layout::kWhole;
  check_problem(problems_with({same_sum}, kTensor), Code::kC4Combination, "out of whole rows");
}

TEST_CASE("cut: tied parameters lie alike, and meet the same rows") {
  ParamSpec cut = with_split({0, 8}), whole = testing::param("w", {8, 6});
  cut.tie = whole.tie = "both";
  check_problem(problems_with({rows_unit("a", {cut}), rows_unit("c", {whole})}, kTensor),
                Code::kC4Combination, "b.a.w and b.c.w are tied, but would lie differently");
  const UnitSpec images = rows_unit("c", {cut}, Layout::kImages);
  CHECK(problems_with({rows_unit("a", {cut}), images}, kTensor).empty());
  MeshDegrees sliced = kTensor;
  sliced.sequence_parallel = true;
  check_problem(problems_with({rows_unit("a", {whole, with_split({0, 8}, {}, "v")}),
                               rows_unit("c", {whole}, Layout::kImages)},
                              sliced),
                Code::kC4Combination, "b.a.w and b.c.w are tied");
}
