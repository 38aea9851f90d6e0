#include "unit_memory.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include "keyseat/memory.h"

namespace keyseat_strategy_single {

using namespace keyseat;

UnitMemory::UnitMemory(const Chain& chain, int index, at::ScalarType compute_dtype,
                       at::Device device, const std::vector<std::unique_ptr<UnitMemory>>& earlier) {
  const ChainUnit& unit = chain.units()[index];
  specs_ = &unit.unit->spec().params;
  const int count = static_cast<int>(specs_->size());
  const int64_t padding = 64 / static_cast<int64_t>(c10::elementSize(compute_dtype));
  bool owns_any = false;
  for (int i = 0; i < count; ++i) {
    if (unit.owners[i] != ParamRef{index, i}) {
      begin_.push_back(-1);
      continue;
    }
    owns_any = true;
    begin_.push_back(elements_);
    elements_ += ((*specs_)[i].numel() + padding - 1) / padding * padding;
  }
  const auto options = at::TensorOptions().device(device);
  {
    const MemoryScope scope(MemoryCategory::kParameters);
    master_ = at::zeros({elements_}, options.dtype(at::kFloat));
    if (compute_dtype != at::kFloat)
      compute_ = at::zeros({elements_}, options.dtype(compute_dtype));
  }
  if (unit.trainable && owns_any) {
    const MemoryScope scope(MemoryCategory::kGradients);
    gradient_ = at::zeros({elements_}, options.dtype(at::kFloat));
  }
  std::vector<ParamHandle> trained, untracked;
  for (int i = 0; i < count; ++i) {
    const ParamRef owner = unit.owners[i];
    const UnitMemory& memory = owner.unit == index ? *this : *earlier[owner.unit];
    for (const bool tracked : {true, false}) {
      auto state = memory.make_state(owner.param, tracked && unit.trainable);
      state->index = i;
      (tracked ? trained : untracked).emplace_back(std::move(state));
    }
  }
  trained_ = Params(specs_, std::move(trained));
  untracked_ = Params(specs_, std::move(untracked));
}

at::Tensor UnitMemory::range(const at::Tensor& flat, int param) const {
  return flat.narrow(0, begin_[param], (*specs_)[param].numel());
}

at::Tensor UnitMemory::compute_copy(int param) const {
  if (!compute_.defined() || (*specs_)[param].keep_fp32) return {};
  return range(compute_, param);
}

c10::intrusive_ptr<ParamState> UnitMemory::make_state(int param, bool trained) const {
  const at::NoGradGuard no_grad;
  auto state = c10::make_intrusive<ParamState>();
  const std::vector<int64_t>& shape = (*specs_)[param].shape;
  const at::Tensor copy = compute_copy(param);
  state->value = (copy.defined() ? copy : master(param)).view(shape).detach();
  if (trained) {
    state->value.set_requires_grad(true);
    state->sink = gradient(param).view(shape);
  }
  return state;
}

}  // namespace keyseat_strategy_single
