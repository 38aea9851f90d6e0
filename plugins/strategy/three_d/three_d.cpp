#include "three_d.h"

#include <fmt/ranges.h>
#include <spdlog/logger.h>

#include "keyseat/mutation.h"
#include "keyseat/row_share.h"
#include "keyseat/sharding/check_cuts.h"

namespace keyseat_strategy_three_d {

using namespace keyseat;

namespace {

const std::vector<ParamSpec> kNoSpecs;

}  // namespace

struct ThreeD::Step {
  Executor& executor;
  StepPlan plan;
  std::vector<std::unique_ptr<Store>> stores;  // by micro-batch; null before and behind its actions
  std::vector<int64_t> actions_left;           // by micro-batch
  std::vector<UnitRange> ranges;
};

ThreeD::ThreeD(const Options& options, const PluginHost& host)
    : options_(options), settings_(options), log_(host.log), no_params_(&kNoSpecs, {}) {}

Problems ThreeD::validate(const StrategyFacts& facts, const Chain& chain) const {
  Problems problems = check_degrees(options_, settings_, facts.world, chain);
  // Costs per rank need degrees that divide.
  if (settings_.fits(facts.world)) Stages::build(options_, settings_, facts, chain, problems);
  return problems;
}

sharding::LayoutRules ThreeD::layout_rules(const StrategyFacts& facts, const Stages& stages,
                                           int64_t stage) const {
  return {settings_.min_bytes, facts.compute_dtype, facts.compute_dtype, stages.units_of(stage),
          settings_.shard_optimizer};
}

void ThreeD::report_replicated(const Chain& chain) const {
  const int64_t tensor = mesh_.degree(Axis::kTensor);
  std::map<std::string, std::vector<std::string>> units;  // by reason
  for (const ChainUnit& unit : chain.units()) {
    const ParamSpec* const param = sharding::replicating_param(unit.unit->spec(), tensor);
    if (param == nullptr) continue;
    units[fmt::format("tensor {} does not divide the {} of {} in {}", tensor,
                      sharding::split_text(*param), param->name, unit.block)]
        .push_back(unit.name);
  }
  for (const auto& [reason, names] : units)
    log_->info("whole on every tensor rank, since {}: {}", reason, fmt::join(names, ", "));
}

void ThreeD::place(const StrategyFacts& facts, const Chain& chain, const Mesh& mesh, Comm& comm) {
  chain_ = &chain;
  mesh_ = mesh;
  device_ = facts.device;
  stage_ = mesh.coordinate(Axis::kPipeline);
  // What refers to the layout goes before it.
  links_.reset();
  ties_.reset();
  sums_.reset();
  values_.reset();
  groups_.clear();
  buckets_.clear();
  shards_.clear();
  Problems problems;
  stages_ = Stages::build(options_, settings_, facts, chain, problems);
  if (!problems.empty()) throw Error(std::move(problems));
  if (facts.rank == 0 && log_ != nullptr) report_replicated(chain);
  ranks_ = sharding::RankGroups(mesh, comm, settings_.shard_optimizer);
  pipeline_ = settings_.pipeline.stages > 1 ? &comm.group(mesh.group({Axis::kPipeline})) : nullptr;
  layout_ = sharding::ModelLayout::build(chain, layout_rules(facts, stages_, stage_), mesh);
  for (const sharding::BucketLayout& bucket : layout_.buckets) {
    buckets_.push_back(std::make_unique<sharding::Bucket>(bucket, facts.device, facts.device));
    buckets_.back()->initialise(chain, facts.seed);
  }
  for (size_t group = 0; group < layout_.groups.size(); ++group) {
    groups_.push_back(std::make_unique<sharding::GatherGroup>(
        chain, layout_, static_cast<int>(group), buckets_, ranks_, facts.device));
  }
  values_ = std::make_unique<ResidentValues>(groups_, layout_, facts.device, settings_.overlap);
  sums_ =
      std::make_unique<GradientSums>(groups_, buckets_, ranks_, facts.device, settings_.overlap);
  ties_ = std::make_unique<TiedStages>(chain, stages_, layout_, buckets_, mesh, comm);
  links_ =
      std::make_unique<StageLinks>(chain, stages_, mesh, comm, facts.compute_dtype, facts.device);
}

void ThreeD::pad(std::vector<Row>& rows) const {
  for (Row& row : rows) pad_row(row, mesh_, settings_.fixed_tokens);
}

void ThreeD::schedule(StepPlan plan, Executor& executor) {
  const auto micro_batches = static_cast<int64_t>(plan.rows.size());
  const auto actions = stage_actions(settings_.pipeline, micro_batches, stage_, plan.training);
  values_->begin();
  if (plan.training) sums_->begin_window();
  std::vector<RowSizes> sizes;
  // Rows of an evaluation are packed to another length, and grow.
  const int64_t fixed_tokens = plan.training ? settings_.fixed_tokens : 0;
  for (Row& row : plan.rows) {
    row = share_row(std::move(row), mesh_, fixed_tokens);
    if (KEYSEAT_MUTATED("tokens_of_own_rows")) row.facts.shared_tokens = row.facts.counts.tokens;
    if (KEYSEAT_MUTATED("visual_rows_off_by_one")) {
      const at::Tensor rows = row.tensors.at("visual_dst");
      row.tensors.set("visual_dst", rows.add(1).remainder(row.facts.row_tokens()));
    }
    sizes.emplace_back(row, mesh_);
  }
  links_->begin_step(std::move(sizes), plan.training);
  Step step{executor, std::move(plan), {}, {}, stages_.ranges_of(stage_)};
  step.stores.resize(static_cast<size_t>(micro_batches));
  step.actions_left.resize(static_cast<size_t>(micro_batches));
  for (const Action& action : actions) ++step.actions_left[action.micro_batch];
  for (const Action& action : actions) run(action, step);
  links_->finish_step();
  values_->finish();
}

void ThreeD::run(const Action& action, Step& step) {
  std::unique_ptr<Store>& store = step.stores[action.micro_batch];
  StepPlan& plan = step.plan;
  if (store == nullptr) {
    store = step.executor.begin(std::move(plan.rows[action.micro_batch]), action.micro_batch,
                                plan.training, step.ranges);
  }
  const int chunk = action.chunk, behind = chunk + 1;
  const UnitRange units = stages_.range(chunk);
  if (!action.backward) {
    if (chunk > 0) links_->receive({false, action.micro_batch, chunk}, step.executor, *store);
    step.executor.forward(*store, units.first, units.last);
    if (behind < stages_.chunks()) {
      links_->send({false, action.micro_batch, behind}, step.executor, *store);
    } else if (plan.on_forward) {
      plan.on_forward(action.micro_batch, step.executor, *store);
    }
  } else {
    if (behind < stages_.chunks())
      links_->receive({true, action.micro_batch, behind}, step.executor, *store);
    last_row_ = action.micro_batch + 1 == static_cast<int64_t>(step.stores.size()) ||
                KEYSEAT_MUTATED("reduced_every_row");
    step.executor.backward(*store, units.first, units.last);
    if (chunk > 0) links_->send({true, action.micro_batch, chunk}, step.executor, *store);
  }
  if (--step.actions_left[action.micro_batch] == 0) store.reset();
}

void ThreeD::finish() {
  sums_->finish();
  if (!KEYSEAT_MUTATED("tied_gradients_apart")) ties_->sum_gradients();
}

const Params& ThreeD::before_forward(int unit, bool training) {
  const int group = layout_.group_of[unit];
  if (group < 0) return no_params_;
  values_->need(group);
  return training ? groups_[group]->trained(unit) : groups_[group]->untracked(unit);
}

const Params& ThreeD::before_backward(int unit) {
  const int group = layout_.group_of[unit];
  return group < 0 ? no_params_ : groups_[group]->trained(unit);
}

// The units of a group run backward together or not at all, the first one last.
void ThreeD::after_backward(int unit) {
  const int group = layout_.group_of[unit];
  if (last_row_ && group >= 0 && unit == layout_.groups[group].units.front()) sums_->reduce(group);
}

}  // namespace keyseat_strategy_three_d
