// What lies in the shards: optimizer shards, norms, whole parameters; and how much it is.
#include <ATen/core/grad_mode.h>

#include "fsdp.h"
#include "keyseat/mutation.h"

namespace keyseat_strategy_fsdp {

using namespace keyseat;

std::vector<OptimizerShard>& Fsdp::shards(int64_t states) {
  if (!shards_.empty()) return shards_;
  for (const auto& bucket : buckets_) {
    if (!bucket->layout().trained) continue;
    // As a step on zero gradients, which makes states and decays what they belong to.
    if (KEYSEAT_MUTATED("states_made_by_a_step")) bucket->master().mul_(0.999);
    bucket->make_states(states);
    bucket->add_shards(*chain_, shards_);
  }
  return shards_;
}

std::vector<NormGroup> Fsdp::norm_groups() {
  // Padding is zero and stays so; a replica holds what the others hold.
  std::vector<Axis> dense_axes{Axis::kShard}, expert_axes{Axis::kExpert, Axis::kExpertData};
  if (KEYSEAT_MUTATED("norm_of_all_replicas")) dense_axes = {Axis::kShard, Axis::kReplicate};
  if (KEYSEAT_MUTATED("norm_of_own_experts")) expert_axes = {Axis::kExpertData};
  if (KEYSEAT_MUTATED("no_norm_without_shards") && shards(2).empty()) return {};
  std::vector<NormGroup> groups;
  for (const NamedBlock& block : chain_->blocks()) {
    for (const Holders holders : {Holders::kStage, Holders::kExpertSlice}) {
      NormGroup group;
      group.block = block.name;
      group.axes = holders == Holders::kExpertSlice ? expert_axes : dense_axes;
      for (const auto& bucket : buckets_) {
        const BucketLayout& layout = bucket->layout();
        if (layout.block != block.name || layout.holders != holders || !layout.trained) continue;
        group.gradients.push_back(bucket->gradient());
        group.masters.push_back(bucket->master());
      }
      // Which buckets there are is the same on every rank.
      if (!group.gradients.empty()) groups.push_back(std::move(group));
    }
  }
  return groups;
}

void Fsdp::after_update() {
  const at::NoGradGuard no_grad;
  // The optimizer refreshes copies that lie beside their masters.
  if (settings_.offload_optimizer) {
    for (const auto& bucket : buckets_) bucket->refresh_copy();
  }
  if (!KEYSEAT_MUTATED("stale_values")) gathers_->invalidate();
}

at::Tensor Fsdp::read(int unit, int param, const at::Tensor& shard) {
  if (!shard.defined()) return {};
  return bucket_of(unit, param).read(shard, layout_.places[unit][param].slice, ranks_);
}

at::Tensor Fsdp::read_master(int unit, int param) {
  return read(unit, param, bucket_of(unit, param).master());
}

at::Tensor Fsdp::read_gradient(int unit, int param) {
  return read(unit, param, bucket_of(unit, param).gradient());
}

at::Tensor Fsdp::read_state(int unit, int param, int64_t state) {
  const Bucket& bucket = bucket_of(unit, param);
  if (!bucket.layout().trained) return {};
  return read(unit, param, bucket.states().at(static_cast<size_t>(state)));
}

void Fsdp::write_master(int unit, int param, const at::Tensor& value) {
  Bucket& bucket = bucket_of(unit, param);
  bucket.write(bucket.master(), layout_.places[unit][param].slice, value);
  bucket.write(bucket.source(), layout_.places[unit][param].slice, value);
  gathers_->invalidate();
}

void Fsdp::write_state(int unit, int param, int64_t state, const at::Tensor& value) {
  const Bucket& bucket = bucket_of(unit, param);
  bucket.write(bucket.states().at(static_cast<size_t>(state)), layout_.places[unit][param].slice,
               value);
}

MemoryEstimate Fsdp::estimate(const StrategyFacts& facts, const Chain& chain,
                              const WorkloadShape& shape, int64_t optimizer_states) const {
  Problems problems;
  const Mesh mesh =
      Mesh::build(degrees(facts.world), facts.world, facts.rank, facts.world, problems);
  const ModelLayout layout =
      ModelLayout::build(chain, settings_.layout_rules(facts.compute_dtype), mesh);
  MemoryEstimate bytes;
  const double master = at::elementSize(at::kFloat);
  const bool host_update = settings_.offload_optimizer;
  for (const BucketLayout& bucket : layout.buckets) {
    const auto shard = static_cast<double>(bucket.shard_elements());
    const bool copy = bucket.has_copy() || host_update;
    if (copy) bytes.parameters += shard * at::elementSize(bucket.gather_dtype);
    if (!host_update) bytes.parameters += shard * master;
    if (!bucket.trained) continue;
    bytes.gradients += shard * master;
    if (!host_update) bytes.optimizer += shard * master * static_cast<double>(optimizer_states);
  }
  bytes.transient = SlotPlan(layout, settings_).bytes();
  double kept_most = 0;
  for (const ChainUnit& unit : chain.units()) {
    const double kept = unit.unit->cost(shape).activation_bytes;
    if (unit.runs_backward) bytes.activations += kept;
    // While a unit runs backward, the gradients of what it kept come on top.
    kept_most = std::max(kept_most, kept);
  }
  bytes.transient += kept_most;
  return bytes;
}

}  // namespace keyseat_strategy_fsdp
