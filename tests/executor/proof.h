// What the proofs of the executor share: mixed rows, and everything a step leaves behind.
#pragma once

#include <ATen/ops/equal.h>

#include "train/model_fixture.h"

namespace keyseat::testing {

// Rows of different lengths: with images, text only, empty.
inline std::vector<Row> mixed_rows(const SmallModel& model) {
  const InputSpec& input = model.chain().input();
  const auto sample = [&](int64_t id, int64_t text, bool image) {
    return small_sample(id, text, image, input);
  };
  std::vector<Row> rows;
  rows.push_back(model.pack({sample(1, 7, true), sample(2, 12, false)}));
  rows.push_back(model.pack({sample(3, 9, false)}));
  rows.push_back(model.pack({}));
  rows.push_back(model.pack({sample(4, 3, true), sample(5, 5, true)}));
  rows.push_back(model.pack({sample(6, 2, false), sample(7, 20, true)}));
  return rows;
}

struct Outcome {
  std::map<std::string, double> losses;
  std::map<std::string, at::Tensor> router_stats, gradients;  // gradients by name of the parameter
};

// The raw gradients of the units [first, last), as they lie in the sinks.
inline void collect_gradients(SmallModel& model, int first, int last, Outcome& outcome) {
  for (int unit = first; unit < last; ++unit) {
    const std::vector<std::string>& names = model.chain().units()[unit].param_names;
    for (size_t param = 0; param < names.size(); ++param) {
      const at::Tensor gradient = model.strategy().read_gradient(unit, static_cast<int>(param));
      if (gradient.defined()) outcome.gradients[names[param]] = gradient.clone();
    }
  }
}

// Losses and statistics of the model's executor since begin_step are added.
inline void collect(SmallModel& model, int first, int last, Outcome& outcome) {
  outcome.losses.merge(model.executor().losses());
  outcome.router_stats.merge(model.executor().router_stats());
  collect_gradients(model, first, last, outcome);
}

inline Outcome outcome_of(SmallModel& model) {
  Outcome outcome;
  collect(model, 0, model.chain().size(), outcome);
  return outcome;
}

// One training step over the mixed rows as the strategy schedules it.
inline Outcome step(SmallModel& model) {
  model.run(mixed_rows(model), /*training=*/true);
  return outcome_of(model);
}

// A new step in which the test calls the executor itself: sinks are zero.
inline void begin_step(SmallModel& model) {
  model.executor().begin_step(0, small_loss_terms(model.chain()));
  model.strategy().schedule({}, model.executor());
}

// The same model on strategy/single with dispatcher/local and recompute/none.
inline Outcome oracle(const Values& decoder = {}, at::ScalarType compute_dtype = at::kFloat) {
  SmallParts parts;
  parts.compute_dtype = compute_dtype;
  SmallModel model(small_blocks(decoder), {}, std::move(parts));
  return step(model);
}

inline void check_bitwise(const Outcome& found, const Outcome& expected) {
  CHECK(found.losses == expected.losses);
  const auto check_tensors = [](const std::map<std::string, at::Tensor>& found,
                                const std::map<std::string, at::Tensor>& expected) {
    CHECK(found.size() == expected.size());
    for (const auto& [name, tensor] : expected) {
      CAPTURE(name);
      REQUIRE(found.contains(name));
      CHECK(at::equal(found.at(name), tensor));
    }
  };
  check_tensors(found.router_stats, expected.router_stats);
  check_tensors(found.gradients, expected.gradients);
}

// The numbers are those of a step that trained everything: nothing above compares zeros.
inline void check_all_trained(const Outcome& outcome) {
  CHECK(outcome.losses.at("ce") > 0);
  for (const auto& [name, gradient] : outcome.gradients) {
    CAPTURE(name);
    CHECK(gradient.isfinite().all().item<bool>());
    CHECK(gradient.abs().max().item<float>() > 0);
  }
}

}  // namespace keyseat::testing
