// The state of one micro-batch behind keyseat::Store.
#pragma once

#include <torch/csrc/autograd/edge.h>

#include "keyseat/executor.h"

namespace keyseat {

// A version of a named tensor in one micro-batch.
struct Slot {
  at::Tensor value;            // detached; undefined before its writer and behind its last reader
  at::Tensor gradient;         // sum so far; undefined where none came
  int contributions = 0;       // gradients in the sum
  std::vector<int64_t> sizes;  // of the value, for a gradient of zeros
  at::TensorOptions options;

  void set(at::Tensor tensor);
  // Adds in fp32 from the third contribution on where `wide`; never into memory that autograd gave.
  void add(const at::Tensor& part, bool wide);
  at::Tensor take_gradient();  // in the value's dtype, zeros where none came
};

// What one unit leaves behind in forward for its backward.
struct UnitRun {
  std::vector<at::Tensor> inputs;            // leaves of the graph; plain values where it replays
  std::vector<torch::autograd::Edge> roots;  // per write; invalid where no graph hangs on it
  std::vector<StepContext::Kept> kept;
  std::unique_ptr<StepContext> context;  // regions may run again until the backward is over
};

struct Store::State {
  RowFacts facts;
  int64_t micro_batch = 0;
  bool training = true;
  std::vector<Slot> slots;    // by version
  std::vector<UnitRun> runs;  // by unit
};

}  // namespace keyseat
