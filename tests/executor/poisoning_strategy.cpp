#include "tests/executor/poisoning_strategy.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

namespace keyseat::testing {
namespace {

constexpr int kPoison = 0xff;  // all bits set is a NaN in fp32 and in bf16

bool is_poison(const void* data, size_t bytes) {
  const auto* const bits = static_cast<const unsigned char*>(data);
  return std::all_of(bits, bits + bytes, [](unsigned char byte) { return byte == kPoison; });
}

}  // namespace

ParameterWindow::ParameterWindow(const Chain& chain, int unit, at::ScalarType compute_dtype,
                                 Strategy& masters)
    : unit_(chain.units()[unit]), index_(unit), masters_(masters) {
  const std::vector<ParamSpec>& specs = unit_.unit->spec().params;
  std::vector<ParamHandle> trained(specs.size()), untracked(specs.size());
  states_.resize(specs.size());
  for (const bool keep_fp32 : {false, true}) {
    Flat flat;
    int64_t elements = 0;
    for (int param = 0; param < static_cast<int>(specs.size()); ++param) {
      if (specs[param].keep_fp32 != keep_fp32) continue;
      flat.params.push_back(param);
      flat.begin.push_back(elements);
      elements += specs[param].numel();
    }
    if (flat.params.empty()) continue;
    flat.memory = at::empty({elements}, keep_fp32 ? at::kFloat : compute_dtype);
    for (size_t i = 0; i < flat.params.size(); ++i) {
      const int param = flat.params[i];
      for (const bool tracked : {true, false}) {
        auto state = c10::make_intrusive<ParamState>();
        state->index = param;
        state->value = flat.memory.narrow(0, flat.begin[i], specs[param].numel())
                           .view(specs[param].shape)
                           .detach();
        state->value.set_requires_grad(tracked && unit_.trainable);
        if (tracked) states_[param] = state;
        (tracked ? trained : untracked)[param] = ParamHandle(state);
      }
    }
    flats_.push_back(std::move(flat));
  }
  trained_ = Params(&specs, std::move(trained));
  untracked_ = Params(&specs, std::move(untracked));
  for (Flat& flat : flats_) swap_in(flat, poisoned(flat.memory.nbytes()));
}

ParameterWindow::Block ParameterWindow::poisoned(size_t bytes) const {
  const at::Tensor memory = at::empty({static_cast<int64_t>(bytes)}, at::kByte);
  Block block{memory.storage().set_data_ptr(at::DataPtr()), bytes};
  std::memset(block.data.get(), kPoison, bytes);
  return block;
}

void ParameterWindow::swap_in(Flat& flat, Block block) {
  Block old{flat.memory.storage().set_data_ptr(std::move(block.data)), flat.memory.nbytes()};
  std::memset(old.data.get(), kPoison, old.bytes);
  retired_.push_back(std::move(old));
}

void ParameterWindow::gather() {
  if (open_) return;
  open_ = true;
  const at::NoGradGuard no_grad;
  for (Flat& flat : flats_) {
    written_outside_ |= !is_poison(flat.memory.data_ptr(), flat.memory.nbytes());
    swap_in(flat, poisoned(flat.memory.nbytes()));
    for (size_t i = 0; i < flat.params.size(); ++i) {
      const at::Tensor master = masters_.read_master(index_, flat.params[i]);
      // Through a tensor of its own: the parameter's version must not move.
      const at::Tensor values = master.to(flat.memory.scalar_type()).contiguous();
      std::memcpy(static_cast<char*>(flat.memory.data_ptr()) +
                      flat.begin[i] * static_cast<int64_t>(flat.memory.element_size()),
                  values.data_ptr(), values.nbytes());
    }
  }
}

void ParameterWindow::release() {
  if (!open_) return;
  open_ = false;
  for (Flat& flat : flats_) swap_in(flat, poisoned(flat.memory.nbytes()));
}

void ParameterWindow::show_sinks() {
  for (auto& state : states_) {
    if (unit_.trainable)
      state->sink = masters_.read_gradient(index_, static_cast<int>(state->index));
  }
}

void ParameterWindow::hide_sinks() {
  for (auto& state : states_) state->sink.reset();
}

bool ParameterWindow::untouched() const {
  if (written_outside_) return false;
  for (const Flat& flat : flats_) {
    if (!open_ && !is_poison(flat.memory.data_ptr(), flat.memory.nbytes())) return false;
  }
  return std::all_of(retired_.begin(), retired_.end(),
                     [](const Block& block) { return is_poison(block.data.get(), block.bytes); });
}

void PoisoningStrategy::place(const StrategyFacts& facts, const Chain& chain, const Mesh& mesh,
                              Comm& comm) {
  single_->place(facts, chain, mesh, comm);
  windows_.clear();
  for (int unit = 0; unit < chain.size(); ++unit) {
    windows_.push_back(
        std::make_unique<ParameterWindow>(chain, unit, facts.compute_dtype, *single_));
  }
}

void PoisoningStrategy::schedule(StepPlan plan, Executor& executor) {
  single_->schedule({plan.step, {}, plan.training, {}}, executor);  // zeroes the sinks
  const int units = static_cast<int>(windows_.size());
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const auto micro_batch = static_cast<int64_t>(i);
    const auto store = executor.begin(std::move(plan.rows[i]), micro_batch, plan.training);
    executor.forward(*store, 0, units);
    if (plan.on_forward) plan.on_forward(micro_batch, executor, *store);
    if (plan.training) executor.backward(*store, 0, units);
  }
  close_all();
}

void PoisoningStrategy::gather(int unit) {
  if (unit < 0 || unit >= static_cast<int>(windows_.size())) return;
  windows_[unit]->gather();
  int open = 0;
  for (const auto& window : windows_) open += window->is_open();
  most_open_ = std::max(most_open_, open);
}

const Params& PoisoningStrategy::before_forward(int unit, bool training) {
  gather(unit);
  gather(unit + 1);  // ahead, as a real strategy does behind the computation
  return training ? windows_[unit]->trained() : windows_[unit]->untracked();
}

const Params& PoisoningStrategy::before_backward(int unit) {
  backwards.push_back(unit);
  if (gathers_for_backward) {
    gather(unit);
    gather(unit - 1);
  }
  windows_[unit]->show_sinks();
  return windows_[unit]->trained();
}

void PoisoningStrategy::after_backward(int unit) {
  windows_[unit]->hide_sinks();
  windows_[unit]->release();
}

void PoisoningStrategy::close_all() {
  for (const auto& window : windows_) window->release();
}

bool PoisoningStrategy::all_closed() const {
  return std::all_of(windows_.begin(), windows_.end(),
                     [](const auto& window) { return !window->is_open() && window->untouched(); });
}

}  // namespace keyseat::testing
