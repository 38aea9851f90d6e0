// What lies in the shards: optimizer shards, norms, whole parameters; and how much it is.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "keyseat/mutation.h"
#include "three_d.h"

namespace keyseat_strategy_three_d {

using namespace keyseat;
using sharding::Bucket;
using sharding::BucketLayout;
using sharding::Holders;

std::vector<OptimizerShard>& ThreeD::shards(int64_t states) {
  if (!shards_.empty()) return shards_;
  for (const auto& bucket : buckets_) {
    if (!bucket->layout().trained || !bucket->layout().owned) continue;
    bucket->make_states(states);
    bucket->add_shards(*chain_, shards_);
  }
  return shards_;
}

bool ThreeD::trains(const std::string& block, Holders holders) const {
  for (const ChainUnit& unit : chain_->units()) {
    if (unit.block != block || !unit.trainable) continue;
    const UnitSpec& facts = unit.unit->spec();
    for (int param = 0; param < static_cast<int>(facts.params.size()); ++param) {
      if (sharding::cut_of(facts, param, mesh_).holders == holders) return true;
    }
  }
  return false;
}

std::vector<Axis> ThreeD::norm_axes(Holders holders) const {
  std::vector<Axis> axes = sharding::piece_axes(holders);
  if (KEYSEAT_MUTATED("norm_of_own_slice") && !axes.empty()) axes.erase(axes.begin());
  if (settings_.shard_optimizer) {
    for (const Axis axis : sharding::holder_axes(holders, /*replicas=*/false)) axes.push_back(axis);
  }
  if (!KEYSEAT_MUTATED("norm_of_own_stage")) axes.push_back(Axis::kPipeline);
  return axes;
}

std::vector<NormGroup> ThreeD::norm_groups() {
  std::vector<NormGroup> groups;
  for (const NamedBlock& block : chain_->blocks()) {
    for (const Holders holders : sharding::kAllHolders) {
      // On every rank, whatever its stage holds.
      if (!trains(block.name, holders)) continue;
      NormGroup group;
      group.block = block.name;
      group.axes = norm_axes(holders);
      for (const auto& bucket : buckets_) {
        const BucketLayout& layout = bucket->layout();
        const bool counts = layout.owned || KEYSEAT_MUTATED("norm_of_all_copies");
        if (layout.block != block.name || layout.holders != holders || !layout.trained || !counts)
          continue;
        group.gradients.push_back(bucket->gradient());
        group.masters.push_back(bucket->master());
      }
      if (KEYSEAT_MUTATED("no_norm_without_shards") && group.gradients.empty()) continue;
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

void ThreeD::after_update() {
  if (!KEYSEAT_MUTATED("tied_copies_stay")) ties_->follow_owner();
  values_->invalidate();
}

const ParamSpec& ThreeD::spec(ParamRef owner) const {
  return chain_->units()[owner.unit].unit->spec().params[owner.param];
}

Bucket* ThreeD::bucket_of(int unit, int param) const {
  const std::vector<sharding::Place>& places = layout_.places[unit];
  return places.empty() ? nullptr : buckets_[places[param].bucket].get();
}

at::Tensor ThreeD::read(int unit, int param, ShardOf shard, int64_t state) {
  const at::NoGradGuard no_grad;
  const ParamRef owner = chain_->units()[unit].owners[param];
  const Bucket* const bucket = bucket_of(owner.unit, owner.param);
  at::Tensor value;
  if (bucket != nullptr) {
    value =
        bucket->read(shard(*bucket, state), layout_.places[owner.unit][owner.param].slice, ranks_);
  } else {
    value = at::empty(spec(owner).shape, at::TensorOptions().dtype(at::kFloat).device(device_));
  }
  if (pipeline_ != nullptr) pipeline_->broadcast(value, stages_.stage_of(owner.unit))->wait();
  return value;
}

at::Tensor ThreeD::read_master(int unit, int param) {
  return read(unit, param,
              [](const Bucket& bucket, int64_t) -> const at::Tensor& { return bucket.master(); });
}

at::Tensor ThreeD::read_gradient(int unit, int param) {
  if (!chain_->units()[unit].trainable) return {};
  return read(unit, param,
              [](const Bucket& bucket, int64_t) -> const at::Tensor& { return bucket.gradient(); });
}

at::Tensor ThreeD::read_state(int unit, int param, int64_t state) {
  if (!chain_->units()[unit].trainable) return {};
  return read(
      unit, param,
      [](const Bucket& bucket, int64_t i) -> const at::Tensor& {
        return bucket.states().at(static_cast<size_t>(i));
      },
      state);
}

void ThreeD::write_master(int unit, int param, const at::Tensor& value) {
  // Every stage that uses a tied parameter writes its copy.
  for (int user = 0; user < chain_->size(); ++user) {
    const std::vector<ParamRef>& owners = chain_->units()[user].owners;
    for (int i = 0; i < static_cast<int>(owners.size()); ++i) {
      if (owners[i] != chain_->units()[unit].owners[param]) continue;
      const Bucket* const bucket = bucket_of(user, i);
      if (bucket == nullptr) continue;
      bucket->write(bucket->master(), layout_.places[user][i].slice, value);
      bucket->write(bucket->source(), layout_.places[user][i].slice, value);
    }
  }
  values_->invalidate();
}

void ThreeD::write_state(int unit, int param, int64_t state, const at::Tensor& value) {
  const ParamRef owner = chain_->units()[unit].owners[param];
  const Bucket* const bucket = bucket_of(owner.unit, owner.param);
  if (bucket == nullptr) return;
  bucket->write(bucket->states().at(static_cast<size_t>(state)),
                layout_.places[owner.unit][owner.param].slice, value);
}

Stages ThreeD::stages_for(const StrategyFacts& facts, const Chain& chain) const {
  Problems problems;
  if (!settings_.fits(facts.world)) return Stages::whole(chain);
  Stages stages = Stages::build(options_, settings_, facts, chain, problems);
  return problems.empty() ? stages : Stages::whole(chain);
}

std::vector<int64_t> ThreeD::unit_stages(const StrategyFacts& facts, const Chain& chain) const {
  const Stages stages = stages_for(facts, chain);
  std::vector<int64_t> by_unit;
  for (int unit = 0; unit < chain.size(); ++unit) by_unit.push_back(stages.stage_of(unit));
  return by_unit;
}

MemoryEstimate ThreeD::estimate(const StrategyFacts& facts, const Chain& chain,
                                const WorkloadShape& shape, int64_t optimizer_states) const {
  Problems problems;
  const Mesh mesh =
      Mesh::build(degrees(facts.world), facts.world, facts.rank, facts.world, problems);
  const Stages stages = stages_for(facts, chain);
  const int64_t stage = mesh.coordinate(Axis::kPipeline);
  const auto layout = sharding::ModelLayout::build(chain, layout_rules(facts, stages, stage), mesh);
  MemoryEstimate bytes;
  const double fp32 = at::elementSize(at::kFloat);
  for (const BucketLayout& bucket : layout.buckets) {
    const auto shard = static_cast<double>(bucket.shard_elements());
    bytes.parameters += shard * fp32 + static_cast<double>(bucket.slot_bytes());
    if (bucket.has_copy()) bytes.parameters += shard * at::elementSize(bucket.gather_dtype);
    if (!bucket.trained) continue;
    bytes.gradients += shard * fp32;
    if (bucket.is_reduced()) bytes.gradients += static_cast<double>(bucket.elements) * fp32;
    if (bucket.owned) bytes.optimizer += shard * fp32 * static_cast<double>(optimizer_states);
  }
  // As many micro-batches as fill the pipeline.
  const auto open = most_open(settings_.pipeline,
                              stage_actions(settings_.pipeline, 2 * stages.chunks(), stage, true));
  for (int chunk = 0; chunk < stages.chunks(); ++chunk) {
    if (open[chunk] == 0) continue;
    for (int unit = stages.range(chunk).first; unit < stages.range(chunk).last; ++unit) {
      const Unit& work = *chain.units()[unit].unit;
      const double kept =
          work.cost(shape).activation_bytes * sharding::kept_share(work.spec(), mesh);
      if (chain.units()[unit].runs_backward)
        bytes.activations += static_cast<double>(open[chunk]) * kept;
      // While a unit runs backward, the gradients of what it kept come on top.
      bytes.transient = std::max(bytes.transient, kept);
    }
  }
  return bytes;
}

}  // namespace keyseat_strategy_three_d
