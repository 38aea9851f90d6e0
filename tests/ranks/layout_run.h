// Test support: three training steps of a small vision-language model under one layout, and what is
// compared between layouts. The oracle is one process whose micro-batch i is the union of all
// ranks' rows i.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "train/model_fixture.h"

namespace keyseat::test {

struct LayoutChoice {
  int64_t world = 1;
  int64_t ranks_per_node = 0;  // 0: all on one
  std::string strategy = "single";
  testing::Values strategy_options = {};
  std::string dispatcher = "local";
  testing::Values dispatcher_options = {};
  std::vector<std::string> freeze = {};
  at::ScalarType compute_dtype = at::kFloat;
  // Instead of the plugin of that name.
  std::function<std::shared_ptr<Strategy>(const Options&)> make_strategy = {};
  std::string recompute = "none";
  testing::Values recompute_options = {};
  // Wrong on purpose: every rank averages over its own tokens, and the ranks' means are averaged.
  bool normalise_by_own_counts = false;
  double timeout_seconds = 60;  // of a rank that waits for another
};

// What a row holds: a sample per entry, `text` random tokens behind an image or not.
struct SampleShape {
  int64_t text = 0;
  bool image = false;
};
// By micro-batch, then row. Row j goes to data rank j mod D; a rank with several runs their union.
using StepShape = std::vector<std::vector<std::vector<SampleShape>>>;

// Two micro-batches of four rows: a row with two images and one without, text without an image, an
// empty row, a single token.
StepShape mixed_step();

struct LayoutModel {
  testing::Values decoder = {};
  bool text_only = false;
  std::map<std::string, double> loss_weights = {};  // by term, instead of the usual ones
  // Instead of the small model.
  std::function<std::vector<NamedBlock>()> blocks = {};
  // Changes initial values behind place(), the same way on every rank.
  std::function<void(const Chain&, Strategy&)> prepare = {};
};

struct LayoutResult {
  std::vector<std::map<std::string, double>> losses;  // per step, by term: sums over all ranks
  std::vector<double> norms;                          // per step
  std::map<std::string, at::Tensor> gradients;        // of the first step, by global name
  std::map<std::string, at::Tensor> changes;          // of the parameters over all steps
};

// Why the layout cannot be run: rules of strategy, mesh and dispatcher, of rank 0. Nothing is
// allocated.
Problems layout_problems(const LayoutChoice& choice, const LayoutModel& model);

// Runs the layout with one thread per rank; the result of rank 0. Throws Error where a rank does,
// or where ranks disagree about losses or norms. `steps` optimizer steps, each on `shape` with
// other samples.
LayoutResult run_layout(const LayoutChoice& choice, const LayoutModel& model,
                        const StepShape& shape, int64_t steps = 3);

// Greatest differences between a layout and the oracle, against the table for several ranks.
struct LayoutDifference {
  double loss = 0;                           // relative
  double gradient = 0;                       // relative L2, per parameter and per expert
  double norm = 0;                           // relative
  double change = 0;                         // relative L2, per parameter
  std::string worst_gradient, worst_change;  // names

  bool within_limits() const;
  std::string text() const;
};
LayoutDifference compare_layouts(const LayoutResult& result, const LayoutResult& oracle);

}  // namespace keyseat::test
