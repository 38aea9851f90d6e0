// The work of a step, as the project's measuring rules define it: what the shape of a row costs.
#pragma once

#include "keyseat/batch.h"
#include "keyseat/chain.h"

namespace keyseat::train {

// The shape of one packed row; its padding tail counts nowhere. `element_bytes` of the compute
// dtype.
WorkloadShape workload_shape(const RowFacts& facts, double element_bytes);

// GEMMs and attention of one row, multiply and add counted as two.
struct StepFlops {
  // Every part forward and twice that backward, frozen or not: comparable with other frameworks.
  double counted = 0;
  // What really has to run: weight gradients only of trained units, input gradients only where
  // something before the unit is trained. Recompute is not part of it.
  double executed = 0;
};
StepFlops step_flops(const Chain& chain, const WorkloadShape& shape);

}  // namespace keyseat::train
