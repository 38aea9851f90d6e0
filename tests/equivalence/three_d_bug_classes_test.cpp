// Known ways in which a pipeline goes wrong: each has a layout that shows it, and a mutation of
// strategy/three_d with which the test fails.
#include <doctest/doctest.h>

#include "tests/equivalence/mutated_three_d.h"
#include "tests/equivalence/mutation_check.h"

namespace keyseat::test::three_d_bugs {
namespace {

using testing::Values;

const Values kPipeline2 = {{"pipeline", int64_t{2}}};

struct Case {
  int64_t world = 2;
  Values options = kPipeline2;
  LayoutModel model = {};
  std::vector<std::string> freeze = {};
};

LayoutChoice choice_of(const Case& test) {
  LayoutChoice choice;
  choice.world = test.world;
  choice.strategy = "three_d";
  choice.strategy_options = test.options;
  for (const char* degree : {"expert", "expert_tensor"}) {
    if (choice.strategy_options.contains(degree)) choice.dispatcher = "alltoall";
  }
  choice.freeze = test.freeze;
  choice.timeout_seconds = 5;
  choice.make_strategy = make_mutated_three_d;
  return choice;
}

void check_bug_class(const Case& test, const std::vector<std::string>& mutations) {
  check_mutations(choice_of(test), test.model, mixed_step(), mutations);
}

Values degrees(const std::vector<std::pair<const char*, int64_t>>& given) {
  Values values;
  for (const auto& [name, degree] : given) values[name] = degree;
  return values;
}

Values first_of_second_stage(const char* unit) {
  return testing::with(kPipeline2, {{"stages", std::vector<std::string>{unit}}});
}

const LayoutModel kTied = {.decoder = {{"tie_word_embeddings", true}}};

const Values kTensor2 = degrees({{"tensor", 2}});
const Values kTensorExperts = degrees({{"tensor", 2}, {"expert", 2}});
const Values kSlices = degrees({{"tensor", 2}, {"expert", 2}, {"expert_tensor", 2}});

}  // namespace

TEST_CASE("three_d: bug class 3: experts sum what tensor ranks give them, whatever holds them") {
  check_bug_class({.world = 4, .options = kTensor2}, {"experts_averaged_over_tensor"});
  check_bug_class({.world = 4, .options = kTensorExperts}, {"experts_averaged_over_tensor"});
  check_bug_class({.world = 4, .options = kSlices}, {"experts_averaged_over_tensor"});
}

TEST_CASE("three_d: bug class 4: the norm counts each element once, over slices and experts") {
  for (const Values& options : {kTensor2, kTensorExperts, degrees({{"expert_tensor", 2}})})
    check_bug_class({.options = options}, {"norm_of_own_slice"});
  check_bug_class({.world = 4, .options = kSlices}, {"norm_of_own_slice"});
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

TEST_CASE("three_d: bug class 8: auxiliary losses have one scale under tensor and context") {
  LayoutModel auxiliary;
  auxiliary.loss_weights = {{"ce", 0}, {"aux", 1}, {"z", 1}};
  for (const Values& options : {kTensor2, kTensorExperts, degrees({{"context", 2}})})
    check_bug_class({.options = options, .model = auxiliary}, {"tokens_of_own_rows"});
  check_bug_class(
      {.world = 4, .options = degrees({{"context", 2}, {"tensor", 2}}), .model = auxiliary},
      {"tokens_of_own_rows"});
}

TEST_CASE("three_d: bug class 13: what is whole on tensor ranks adds up their shares") {
  check_bug_class({.options = kTensorExperts}, {"tensor_shares_averaged", "tensor_copies_summed"});
  check_bug_class({.world = 4, .options = degrees({{"context", 2}, {"tensor", 2}})},
                  {"tensor_shares_averaged", "tensor_copies_summed"});
}

TEST_CASE("three_d: bug class 14: rows of several slices and experts are sorted by their counts") {
  check_bug_class({.world = 4, .options = degrees({{"expert", 2}, {"expert_tensor", 2}})}, {});
}

TEST_CASE("three_d: bug class 15: tensor ranks take neighbouring rows of all samples") {
  // Two samples with an image in one row.
  check_bug_class({.options = kTensor2}, {"visual_rows_off_by_one"});
  check_bug_class({.options = degrees({{"context", 2}})}, {"visual_rows_off_by_one"});
}

TEST_CASE("three_d: bug class 22: a tied parameter is one: its gradients, its values, its norm") {
  for (const int64_t world : {2, 4}) {
    check_bug_class({.world = world, .model = kTied},
                    {"tied_gradients_apart", "tied_copies_stay", "norm_of_all_copies"});
  }
}

TEST_CASE("three_d: bug class 23: gradients add up over micro-batches and are reduced once") {
  check_bug_class({.world = 4}, {"reduced_every_row"});
  check_bug_class({.world = 4, .options = degrees({{"pipeline", 2}, {"virtual", 2}})},
                  {"reduced_every_row"});
}

}  // namespace keyseat::test::three_d_bugs
