// Flat memory of one unit's parameters.
#pragma once

#include <memory>
#include <vector>

#include "keyseat/chain.h"
#include "keyseat/params.h"

namespace keyseat_strategy_single {

// Parameters owned by a unit lie behind each other in ParamSpec order, each padded to 64 bytes of
// the compute dtype; master, compute copy, gradient and optimizer states use the same offsets. A
// parameter that is tied to an earlier unit's takes no memory here.
class UnitMemory {
 public:
  // Allocates master and compute copy, and the gradient where the unit is trained. `owners`: the
  // memories of earlier units, for tied parameters.
  UnitMemory(const keyseat::Chain& chain, int unit, at::ScalarType compute_dtype, at::Device device,
             const std::vector<std::unique_ptr<UnitMemory>>& earlier);

  bool owns(int param) const { return begin_[param] >= 0; }
  // Handles whose values are autograd leaves where the unit is trained, and the same without.
  const keyseat::Params& trained() const { return trained_; }
  const keyseat::Params& untracked() const { return untracked_; }

  // 1-D ranges of an owned parameter.
  at::Tensor master(int param) const { return range(master_, param); }
  at::Tensor gradient(int param) const { return range(gradient_, param); }
  at::Tensor range(const at::Tensor& flat, int param) const;
  // The copy that units compute with, or undefined where that is the master.
  at::Tensor compute_copy(int param) const;
  const at::Tensor& flat_master() const { return master_; }
  const at::Tensor& flat_gradient() const { return gradient_; }  // undefined where not trained
  int64_t elements() const { return elements_; }                 // of a flat buffer, with padding

 private:
  c10::intrusive_ptr<keyseat::ParamState> make_state(int param, bool trained) const;
  const std::vector<keyseat::ParamSpec>* specs_;
  std::vector<int64_t> begin_;  // by parameter; -1 where it is tied to an earlier one
  int64_t elements_ = 0;
  at::Tensor master_, compute_, gradient_;
  keyseat::Params trained_, untracked_;
};

}  // namespace keyseat_strategy_single
