// Known ways in which a pipeline goes wrong: each has a layout that shows it, and a mutation of
// strategy/three_d with which the test fails.
#include <doctest/doctest.h>

#include "tests/equivalence/mutated_three_d.h"
#include "tests/equivalence/mutation_check.h"

namespace keyseat::test::three_d_bugs {
namespace {

using testing::Values;

struct Case {
  int64_t world = 2;
  Values options = {};
  LayoutModel model = {};
  std::vector<std::string> freeze = {};
};

LayoutChoice choice_of(const Case& test) {
  LayoutChoice choice;
  choice.world = test.world;
  choice.strategy = "three_d";
  choice.strategy_options = testing::with({{"pipeline", int64_t{2}}}, test.options);
  if (choice.strategy_options.contains("expert") ||
      choice.strategy_options.contains("expert_tensor"))
    choice.dispatcher = "alltoall";
  choice.freeze = test.freeze;
  choice.timeout_seconds = 5;
  choice.make_strategy = make_mutated_three_d;
  return choice;
}

void check_bug_class(const Case& test, const std::vector<std::string>& mutations) {
  check_mutations(choice_of(test), test.model, mixed_step(), mutations);
}

Values first_of_second_stage(const char* unit) {
  return {{"stages", std::vector<std::string>{unit}}};
}

const LayoutModel kTied = {.decoder = {{"tie_word_embeddings", true}}};

}  // namespace

TEST_CASE("three_d: bug classes 3 and 4: slices of an expert sum over their own ranks, and once") {
  const Values sliced = {{"expert_tensor", int64_t{2}}};
  const Values both = {{"expert_tensor", int64_t{2}}, {"expert", int64_t{2}}};
  check_bug_class({.world = 4, .options = sliced}, {"norm_of_own_slice"});
  check_bug_class({.world = 8, .options = both}, {"norm_of_own_slice"});
}

TEST_CASE("three_d: bug class 5: a stage that trains nothing, or no expert, joins every norm") {
  // Stage 0 holds frozen units only.
  check_bug_class(
      {.options = first_of_second_stage("decoder.embed_tokens"), .freeze = {"vision", "projector"}},
      {"no_norm_without_shards"});
  // Routed experts on stage 1 only.
  check_bug_class({.world = 4,
                   .options = testing::with(first_of_second_stage("decoder.layers.0"),
                                            {{"expert", int64_t{2}}})},
                  {"no_norm_without_shards"});
}

TEST_CASE("three_d: bug class 6: the norm is that of all stages, on every rank") {
  check_bug_class({}, {"norm_of_own_stage"});
}

TEST_CASE("three_d: bug class 7: a stage without a MoE layer, before or behind those that have") {
  for (const std::vector<int64_t>& dense : {std::vector<int64_t>{0, 1}, std::vector<int64_t>{2}}) {
    LayoutModel model;
    model.decoder = {{"mlp_only_layers", dense}};
    check_bug_class({.world = 4,
                     .options = testing::with(first_of_second_stage("decoder.layers.2"),
                                              {{"expert", int64_t{2}}}),
                     .model = model},
                    {});
  }
}

TEST_CASE("three_d: bug class 22: a tied parameter is one: its gradients, its values, its norm") {
  for (const int64_t world : {2, 4}) {
    check_bug_class({.world = world, .model = kTied},
                    {"tied_gradients_apart", "tied_copies_stay", "norm_of_all_copies"});
  }
}

TEST_CASE("three_d: bug class 23: gradients add up over micro-batches and are reduced once") {
  check_bug_class({.world = 4}, {"reduced_every_row"});
  check_bug_class({.world = 4, .options = {{"virtual", int64_t{2}}}}, {"reduced_every_row"});
}

}  // namespace keyseat::test::three_d_bugs
