#include "single.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include "keyseat/memory.h"
#include "keyseat/random.h"

namespace keyseat_strategy_single {

using namespace keyseat;

namespace {

// memset by chunks, all buffers in one parallel region; on the CPU it beats at::zero_, which stores
// through the caches.
void zero(const std::vector<at::Tensor>& buffers) {
  constexpr int64_t kChunk = int64_t{4} << 20;  // bytes
  std::vector<std::pair<char*, size_t>> chunks;
  for (const at::Tensor& buffer : buffers) {
    if (!buffer.is_cpu()) {
      buffer.zero_();
      continue;
    }
    auto* const bytes = static_cast<char*>(buffer.data_ptr());
    const auto size = static_cast<int64_t>(buffer.nbytes());
    for (int64_t first = 0; first < size; first += kChunk) {
      chunks.emplace_back(bytes + first, static_cast<size_t>(std::min(kChunk, size - first)));
    }
  }
  at::parallel_for(0, static_cast<int64_t>(chunks.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) std::memset(chunks[i].first, 0, chunks[i].second);
  });
}

void initialise(const at::Tensor& master, const ParamSpec& spec, uint64_t seed) {
  switch (spec.init.kind) {
    case Init::Kind::kZeros:
      master.zero_();
      return;
    case Init::Kind::kOnes:
      master.fill_(1);
      return;
    case Init::Kind::kNormal:
      break;
  }
  if (master.is_cpu()) {
    fill_normal(master, seed, spec.init.std);
    return;
  }
  const at::Tensor host = master.cpu();
  fill_normal(host, seed, spec.init.std);
  master.copy_(host);
}

}  // namespace

Single::Single(const Options&, const PluginHost&) {}

OptionSchema Single::options() { return {}; }

MeshDegrees Single::degrees(int64_t) const { return {}; }

Problems Single::validate(const StrategyFacts& facts, const Chain&) const {
  if (facts.world == 1) return {};
  return {{Code::kC4Combination,
           {},
           fmt::format("strategy \"single\" runs on one rank, but {} were launched", facts.world),
           "it neither shards parameters nor reduces gradients",
           "launch one rank, or choose a strategy that spreads the model (strategy.plugin)"}};
}

void Single::place(const StrategyFacts& facts, const Chain& chain, const Mesh&, Comm&) {
  chain_ = &chain;
  memory_.clear();
  shards_.clear();
  flat_states_.clear();
  for (int unit = 0; unit < chain.size(); ++unit) {
    memory_.push_back(
        std::make_unique<UnitMemory>(chain, unit, facts.compute_dtype, facts.device, memory_));
    const std::vector<ParamSpec>& specs = chain.units()[unit].unit->spec().params;
    for (int param = 0; param < static_cast<int>(specs.size()); ++param) {
      if (!memory_[unit]->owns(param)) continue;
      const at::Tensor master = memory_[unit]->master(param);
      initialise(master, specs[param],
                 derive_seed(facts.seed, chain.units()[unit].param_names[param]));
      const at::Tensor copy = memory_[unit]->compute_copy(param);
      if (copy.defined()) copy.copy_(master);
    }
  }
}

void Single::schedule(StepPlan plan, Executor& executor) {
  // The window of accumulation begins: every gradient of the step adds into these.
  if (plan.training) zero(flat_gradients());
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const auto micro_batch = static_cast<int64_t>(i);
    const std::unique_ptr<Store> store =
        executor.begin(std::move(plan.rows[i]), micro_batch, plan.training);
    executor.forward(*store, 0, chain_->size());
    if (plan.on_forward) plan.on_forward(micro_batch, executor, *store);
    if (plan.training) executor.backward(*store, 0, chain_->size());
  }
}

std::vector<OptimizerShard>& Single::shards(int64_t states) {
  if (!shards_.empty()) return shards_;
  const MemoryScope scope(MemoryCategory::kOptimizer);
  flat_states_.resize(memory_.size());
  for (int index = 0; index < chain_->size(); ++index) {
    const ChainUnit& unit = chain_->units()[index];
    const UnitMemory& memory = *memory_[index];
    if (!memory.flat_gradient().defined()) continue;
    std::vector<at::Tensor>& flat_states = flat_states_[index];
    for (int64_t i = 0; i < states; ++i) {
      flat_states.push_back(at::zeros({memory.elements()}, memory.flat_gradient().options()));
    }
    const std::vector<ParamSpec>& specs = unit.unit->spec().params;
    for (int param = 0; param < static_cast<int>(specs.size()); ++param) {
      if (!memory.owns(param)) continue;
      OptimizerShard shard;
      shard.spec = &specs[param];
      shard.name = unit.param_names[param];
      shard.end = specs[param].numel();
      shard.master = memory.master(param);
      shard.grad = memory.gradient(param);
      for (const at::Tensor& flat : flat_states) shard.state.push_back(memory.range(flat, param));
      shard.compute = memory.compute_copy(param);
      shards_.push_back(std::move(shard));
    }
  }
  return shards_;
}

std::vector<at::Tensor> Single::flat_gradients() const {
  std::vector<at::Tensor> buffers;
  for (const auto& memory : memory_) {
    if (memory->flat_gradient().defined()) buffers.push_back(memory->flat_gradient());
  }
  return buffers;
}

std::vector<NormGroup> Single::norm_groups() {
  // The padding between parameters is zero and stays so; tied parameters lie only at their owner.
  std::vector<NormGroup> groups;
  for (const NamedBlock& block : chain_->blocks()) {
    NormGroup group;
    group.block = block.name;
    for (int unit = 0; unit < chain_->size(); ++unit) {
      const at::Tensor& gradient = memory_[unit]->flat_gradient();
      if (chain_->units()[unit].block != block.name || !gradient.defined()) continue;
      group.gradients.push_back(gradient);
      group.masters.push_back(memory_[unit]->flat_master());
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

const ParamSpec& Single::spec(ParamRef owner) const {
  return chain_->units()[owner.unit].unit->spec().params[owner.param];
}

at::Tensor Single::read_master(int unit, int param) {
  const ParamRef owner = chain_->units()[unit].owners[param];
  return memory_[owner.unit]->master(owner.param).view(spec(owner).shape);
}

void Single::write_master(int unit, int param, const at::Tensor& value) {
  const at::NoGradGuard no_grad;
  const ParamRef owner = chain_->units()[unit].owners[param];
  const at::Tensor master = memory_[owner.unit]->master(owner.param);
  master.view(spec(owner).shape).copy_(value);
  const at::Tensor copy = memory_[owner.unit]->compute_copy(owner.param);
  if (copy.defined()) copy.copy_(master);
}

at::Tensor Single::read_gradient(int unit, int param) {
  const ParamRef owner = chain_->units()[unit].owners[param];
  const UnitMemory& memory = *memory_[owner.unit];
  if (!memory.flat_gradient().defined()) return {};
  return memory.gradient(owner.param).view(spec(owner).shape);
}

at::Tensor Single::state_range(ParamRef owner, int64_t state) const {
  const std::vector<at::Tensor>& flat = flat_states_.at(owner.unit);
  if (flat.empty()) return {};
  return memory_[owner.unit]->range(flat.at(state), owner.param).view(spec(owner).shape);
}

at::Tensor Single::read_state(int unit, int param, int64_t state) {
  return state_range(chain_->units()[unit].owners[param], state);
}

void Single::write_state(int unit, int param, int64_t state, const at::Tensor& value) {
  const at::NoGradGuard no_grad;
  state_range(chain_->units()[unit].owners[param], state).copy_(value);
}

MemoryEstimate Single::estimate(const StrategyFacts& facts, const Chain& chain,
                                const WorkloadShape& shape, int64_t optimizer_states) const {
  const double master = at::elementSize(at::kFloat);
  const double copy = facts.compute_dtype == at::kFloat ? 0 : at::elementSize(facts.compute_dtype);
  const auto all = static_cast<double>(chain.parameter_count());
  const auto trained = static_cast<double>(chain.trainable_count());
  MemoryEstimate bytes;
  bytes.parameters = all * (master + copy);
  bytes.gradients = trained * master;
  bytes.optimizer = trained * master * static_cast<double>(optimizer_states);
  for (const ChainUnit& unit : chain.units()) {
    const double kept = unit.unit->cost(shape).activation_bytes;
    if (unit.runs_backward) bytes.activations += kept;
    // While a unit runs backward, the gradients of what it kept come on top.
    bytes.transient = std::max(bytes.transient, kept);
  }
  return bytes;
}

const Params& Single::before_forward(int unit, bool training) {
  return training ? memory_[unit]->trained() : memory_[unit]->untracked();
}

const Params& Single::before_backward(int unit) { return memory_[unit]->trained(); }

}  // namespace keyseat_strategy_single
