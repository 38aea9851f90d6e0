#include "train/store.h"

#include <ATen/ops/zeros.h>

namespace keyseat {

void Slot::set(at::Tensor tensor) {
  sizes = tensor.sizes().vec();
  options = tensor.options();
  value = std::move(tensor);
}

void Slot::add(const at::Tensor& part, bool wide) {
  const at::Tensor term = wide ? part.to(at::kFloat) : part;
  if (contributions == 0) {
    gradient = term;
  } else if (contributions == 1 || !wide) {
    // Autograd may hand out gradients that share memory, so the first sum gets memory of its own.
    gradient = gradient.add(term);
  } else {
    gradient.add_(term);
  }
  ++contributions;
}

at::Tensor Slot::take_gradient() {
  at::Tensor taken = std::exchange(gradient, {});
  contributions = 0;
  if (!taken.defined()) return at::zeros(sizes, options);
  return taken.to(options.dtype());
}

Store::Store(std::unique_ptr<State> state) : state_(std::move(state)) {}
Store::~Store() = default;
const RowFacts& Store::row() const { return state_->facts; }
int64_t Store::micro_batch() const { return state_->micro_batch; }
bool Store::training() const { return state_->training; }

}  // namespace keyseat
