// Known ways in which sharded training goes wrong: each has a layout that shows it, and a mutation
// of strategy/fsdp (or of the normalisers) with which the test fails. The numbers are those of the
// list in README.md of this folder.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <doctest/doctest.h>

#include "keyseat/interfaces/dispatcher.h"
#include "tests/equivalence/mutated_fsdp.h"
#include "tests/equivalence/mutation_check.h"
#include "train/test_units.h"

using namespace keyseat;
using namespace keyseat::test;
using keyseat::testing::Values;
using keyseat::testing::with;

namespace {

struct Case {
  int64_t world = 2;
  Values options = {};
  LayoutModel model = {};
  StepShape shape = mixed_step();
  std::vector<std::string> freeze = {};
};

LayoutChoice choice_of(const Case& test) {
  LayoutChoice choice;
  choice.world = test.world;
  choice.strategy = "fsdp";
  choice.strategy_options = with({{"min_bytes", int64_t{0}}, {"poison", true}}, test.options);
  choice.freeze = test.freeze;
  const auto expert = choice.strategy_options.find("expert");
  if (expert != choice.strategy_options.end() && std::get<int64_t>(expert->second) > 1)
    choice.dispatcher = "alltoall";
  choice.timeout_seconds = 5;
  choice.make_strategy = make_mutated_fsdp;
  return choice;
}

LayoutResult oracle_of(const Case& test) {
  LayoutChoice oracle;
  oracle.freeze = test.freeze;
  return run_layout(oracle, test.model, test.shape);
}

void check_case(const Case& test, const std::vector<std::string>& mutations) {
  check_mutations(choice_of(test), test.model, test.shape, mutations);
}

const Values kExpert2 = {{"expert", int64_t{2}}};

}  // namespace

TEST_CASE("bug class 1: expert gradients are those of all tokens, not times the expert degree") {
  check_case({.world = 2, .options = kExpert2}, {"experts_times_ep"});
  check_case({.world = 4, .options = kExpert2}, {"experts_times_ep"});
}

TEST_CASE("bug class 2: the only shard of an expert is scaled like every other") {
  check_case({.world = 2, .options = kExpert2}, {"one_shard_times_ep"});
}

TEST_CASE("bug class 4: the norm counts each element once, over replicas and experts") {
  check_case({.world = 4, .options = {{"replicate", int64_t{2}}, {"expert", int64_t{2}}}},
             {"norm_of_all_replicas", "norm_of_own_experts"});
}

TEST_CASE("bug class 5: a rank without a shard, and a model without anything to train") {
  // Three elements: all of them lie on the first rank.
  LayoutModel tiny;
  tiny.blocks = [] {
    using namespace keyseat::testing;
    const UnitSpec unit =
        unit_spec("u", {param("w", {3})}, {spec("labels", {DimSymbol::kT}, at::kLong)},
                  {spec("loss.ce", {Dim(1)}, at::kFloat, "tokens")});
    const Forward forward = [](const Params& params, const Tensors& inputs, StepContext&) {
      const auto tokens = static_cast<double>(inputs.at("labels").size(0));
      return Tensors{{"loss.ce", params.at("w").value().pow(2).sum().mul(tokens).reshape({1})}};
    };
    return std::vector<NamedBlock>{block("b", {{unit, forward}})};
  };
  const StepShape text{{{{5, false}}, {{6, false}}, {}, {{7, false}}}};
  check_case({.world = 4, .model = tiny, .shape = text}, {"no_norm_without_shards"});

  const Case nothing{.freeze = {"vision", "projector", "decoder"}};
  const LayoutResult result = run_layout(choice_of(nothing), nothing.model, nothing.shape);
  for (double norm : result.norms) CHECK(norm == 0);
  CHECK(result.gradients.empty());
}

namespace {

// One unit of two parameters, of which the loss reads one.
LayoutModel model_with_unused_parameter() {
  LayoutModel model;
  model.blocks = [] {
    using namespace keyseat::testing;
    const UnitSpec unit = unit_spec("u", {param("used", {40}), param("unused", {56})},
                                    {spec("labels", {DimSymbol::kT}, at::kLong)},
                                    {spec("loss.ce", {Dim(1)}, at::kFloat, "tokens")});
    const Forward forward = [](const Params& params, const Tensors& inputs, StepContext&) {
      const auto tokens = static_cast<double>(inputs.at("labels").size(0));
      return Tensors{{"loss.ce", params.at("used").value().pow(2).sum().mul(tokens).reshape({1})}};
    };
    return std::vector<NamedBlock>{block("b", {{unit, forward}})};
  };
  return model;
}

// As from a checkpoint: every element has another state.
void load_states(const Chain& chain, Strategy& strategy) {
  strategy.shards(2);
  for (int unit = 0; unit < chain.size(); ++unit) {
    for (int param = 0; param < static_cast<int>(chain.units()[unit].param_names.size()); ++param) {
      const at::Tensor zero = strategy.read_state(unit, param, 0);
      if (!zero.defined()) continue;
      const at::Tensor ramp = at::arange(1, zero.numel() + 1, at::kFloat)
                                  .div(static_cast<double>(zero.numel()))
                                  .view(zero.sizes());
      strategy.write_state(unit, param, 0, ramp.mul(1e-2));
      strategy.write_state(unit, param, 1, ramp.square().mul(1e-3));
    }
  }
}

}  // namespace

TEST_CASE(
    "bug class 21: values follow every update; tied, frozen and unused ones keep their order") {
  const Values never = {{"reshard_after_forward", std::string("never")}};
  check_case({.options = never}, {"stale_values"});
  check_case({.model = {.decoder = {{"tie_word_embeddings", true}}}, .freeze = {"vision"}},
             {"last_row_only"});
  // The decoder is frozen, but the gradient of the projector goes through it.
  check_case({.freeze = {"decoder"}}, {"frozen_stay_released"});
  const StepShape text{{{{5, false}}, {{6, false}}}, {{{4, false}}, {{7, false}}}};
  check_case({.model = model_with_unused_parameter(), .shape = text}, {"gradients_not_cleared"});
  const LayoutModel resumed{.prepare = load_states};
  check_case({.model = resumed}, {"first_part_on_every_rank", "states_made_by_a_step"});
  check_case({.options = kExpert2, .model = resumed}, {"first_part_on_every_rank"});
}

TEST_CASE("bug class 23: gradients add up over micro-batches and are summed over replicas once") {
  check_case({.options = {{"replicate", int64_t{2}}}}, {"replicas_summed_twice"});
  check_case({.world = 4, .options = {{"replicate", int64_t{2}}}},
             {"last_row_only", "replicas_summed_twice"});
}

TEST_CASE("bug class 24: a token weighs the same on every rank, however many labels it has") {
  const StepShape uneven{{{{40, false}}, {{2, false}}}};
  check_case({.shape = uneven}, {});
  const Case test{.shape = uneven};
  LayoutChoice wrong = choice_of(test);
  wrong.normalise_by_own_counts = true;
  CHECK_FALSE(compare_layouts(run_layout(wrong, {}, uneven), oracle_of(test)).within_limits());
}

TEST_CASE("bug class 25: a rank, or every rank, without an image") {
  const StepShape one_rank{{{{5, true}}, {{6, false}}}, {{{7, false}}, {{4, false}}}};
  const StepShape none{{{{5, false}}, {{6, false}}}};
  for (const std::vector<std::string>& freeze : {std::vector<std::string>{}, {"vision"}}) {
    check_case({.shape = one_rank, .freeze = freeze}, {});
    check_case({.shape = none, .freeze = freeze}, {});
  }
  // Ranks that reduce what they have only do not meet.
  check_case({.shape = one_rank}, {"reduce_only_what_came"});
}
