#include "fsdp.h"

#include <ATen/core/grad_mode.h>

namespace keyseat_strategy_fsdp {

using namespace keyseat;

namespace {

const std::vector<ParamSpec> kNoSpecs;

}  // namespace

Fsdp::Fsdp(const Options& options, const PluginHost& /*host*/)
    : options_(options), settings_(options), no_params_(&kNoSpecs, {}) {}

Problems Fsdp::validate(const StrategyFacts& facts, const Chain& chain) const {
  return check_layout(options_, settings_, facts, chain);
}

void Fsdp::place(const StrategyFacts& facts, const Chain& chain, const Mesh& mesh, Comm& comm) {
  chain_ = &chain;
  // What refers to the layout goes before it.
  gathers_.reset();
  reducer_.reset();
  groups_.clear();
  buckets_.clear();
  shards_.clear();
  ranks_ = RankGroups(mesh, comm);
  layout_ = ModelLayout::build(chain, settings_.layout_rules(facts.compute_dtype), mesh);
  if (!settings_.trace.empty()) trace_ = Trace(settings_.trace, facts.rank);
  const at::Device masters = settings_.offload_optimizer ? at::Device(at::kCPU) : facts.device;
  for (const BucketLayout& bucket : layout_.buckets) {
    buckets_.push_back(std::make_unique<Bucket>(bucket, facts.device, masters));
    buckets_.back()->initialise(chain, facts.seed);
  }
  std::vector<std::string> names;
  for (size_t group = 0; group < layout_.groups.size(); ++group) {
    groups_.push_back(std::make_unique<GatherGroup>(chain, layout_, static_cast<int>(group),
                                                    buckets_, ranks_, facts.device));
    names.push_back(chain.units()[layout_.groups[group].units.front()].name);
  }
  slots_ = std::make_unique<SlotPlan>(layout_, settings_);
  gathers_ =
      std::make_unique<GatherSchedule>(groups_, settings_, *slots_, facts.device, trace_, names);
  reducer_ = std::make_unique<GradientReducer>(groups_, buckets_, ranks_, settings_, *slots_,
                                               facts.device, trace_, names);
}

void Fsdp::schedule(StepPlan plan, Executor& executor) {
  gathers_->plan(plan.rows.size(), plan.training);
  if (plan.training) reducer_->begin_window();
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const auto micro_batch = static_cast<int64_t>(i);
    last_row_ = i + 1 == plan.rows.size();
    const std::unique_ptr<Store> store =
        executor.begin(std::move(plan.rows[i]), micro_batch, plan.training);
    executor.forward(*store, 0, chain_->size());
    if (plan.on_forward) plan.on_forward(micro_batch, executor, *store);
    if (plan.training) executor.backward(*store, 0, chain_->size());
  }
}

void Fsdp::finish() {
  reducer_->finish();
  trace_.flush();
}

// A group is entered with its first unit and left with its last, in the order in which they run:
// forward in chain order, backward in reverse. Its units run backward together or not at all.
const Params& Fsdp::before_forward(int unit, bool training) {
  const int group = layout_.group_of[unit];
  if (group >= 0 && unit == layout_.groups[group].units.front()) gathers_->enter(group);
  if (trace_.on()) trace_.begin(Trace::Lane::kCompute, label(unit, false));
  if (group < 0) return no_params_;
  return training ? groups_[group]->trained(unit) : groups_[group]->untracked(unit);
}

void Fsdp::after_forward(int unit) {
  const int group = layout_.group_of[unit];
  if (trace_.on()) trace_.end(Trace::Lane::kCompute, label(unit, false));
  if (group >= 0 && unit == layout_.groups[group].units.back()) gathers_->leave(group);
}

const Params& Fsdp::before_backward(int unit) {
  const int group = layout_.group_of[unit];
  if (group >= 0 && unit == layout_.groups[group].units.back()) {
    gathers_->enter(group);
    reducer_->before_backward(group);
  }
  if (trace_.on()) trace_.begin(Trace::Lane::kCompute, label(unit, true));
  if (group < 0) return no_params_;
  return groups_[group]->trained(unit);
}

void Fsdp::after_backward(int unit) {
  const int group = layout_.group_of[unit];
  if (trace_.on()) trace_.end(Trace::Lane::kCompute, label(unit, true));
  if (group < 0 || unit != layout_.groups[group].units.front()) return;
  reducer_->after_backward(group, last_row_);
  gathers_->leave(group);
}

std::string Fsdp::label(int unit, bool backward) const {
  return chain_->units()[unit].name + (backward ? " backward" : "");
}

}  // namespace keyseat_strategy_fsdp
