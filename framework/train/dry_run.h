// Dry runs: the chain forward and backward on meta tensors, which have shapes and dtypes and no
// memory. A model of any size passes in seconds on any machine.
#pragma once

#include "keyseat/executor.h"

namespace keyseat::train {

// Parameters of shapes and dtypes only.
class MetaParameters final : public UnitEvents {
 public:
  MetaParameters(const Chain& chain, at::ScalarType compute_dtype);
  const Params& before_forward(int unit, bool training) override {
    return training ? trained_[unit] : untracked_[unit];
  }
  void after_forward(int) override {}
  const Params& before_backward(int unit) override { return trained_[unit]; }
  void after_backward(int) override {}

 private:
  std::vector<Params> trained_, untracked_;  // by unit
};

// One training micro-batch. `services` gives dispatcher, recompute, comm, mesh and compute dtype;
// events and device are replaced. Throws Error with the unit's name where shapes or dtypes do not
// fit. Returns the bytes that cross every cut 0..size() of the chain: what is live there.
std::vector<int64_t> dry_run(const Chain& chain, ExecutorServices services, Row row);

}  // namespace keyseat::train
