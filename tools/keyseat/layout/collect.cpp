#include <ATen/core/Tensor.h>

#include "keyseat/interfaces/dispatcher.h"
#include "keyseat/interfaces/optimizer.h"
#include "keyseat/sharding/cut.h"
#include "tools/keyseat/chain/meta_row.h"
#include "tools/keyseat/layout/layout_facts.h"
#include "train/build_chain.h"
#include "train/check_dispatcher.h"
#include "train/workload.h"

namespace keyseat::tool::layout {

namespace {

constexpr int64_t kRanksPerNode = 8;  // where the configuration does not say

template <typename Interface>
std::shared_ptr<Interface> create(const RunConfig& config, Registry& registry,
                                  const PluginChoice& choice) {
  PluginHost host;
  host.instance = choice.instance;
  host.seed = config.run.seed;
  return registry.create<Interface>(choice.name, choice.options, host);
}

void add_unit(const Chain& chain, int index, const Mesh& mesh, const WorkloadShape& shape,
              StageFacts& stage) {
  const ChainUnit& unit = chain.units()[index];
  if (stage.units++ == 0) stage.first_unit = unit.name;
  stage.last_unit = unit.name;
  const UnitSpec& spec = unit.unit->spec();
  stage.flops +=
      unit.unit->cost(shape).flops * chain.passes(index) * sharding::work_share(spec, mesh);
  for (int param = 0; param < static_cast<int>(spec.params.size()); ++param) {
    // Of the first place, which no other exceeds.
    stage.parameters += sharding::cut_of(spec, param, mesh).pieces.at(0).numel();
  }
}

}  // namespace

LayoutFacts collect(const RunConfig& config, Registry& registry, int64_t world,
                    chain::RowShape row) {
  const auto strategy = create<Strategy>(config, registry, config.strategy);
  const auto dispatcher = create<Dispatcher>(config, registry, config.dispatcher);
  const auto optimizer = create<Optimizer>(config, registry, config.optimizer);

  StrategyFacts facts;
  facts.world = world;
  facts.ranks_per_node =
      config.run.ranks_per_node > 0 ? config.run.ranks_per_node : std::min(world, kRanksPerNode);
  facts.compute_dtype = config.run.precision == Precision::kBf16 ? at::kBFloat16 : at::kFloat;
  facts.device = config.run.device == DeviceKind::kCuda ? at::kCUDA : at::kCPU;
  facts.seed = config.run.seed;
  LayoutFacts found;
  Problems problems;
  found.mesh = Mesh::build(strategy->degrees(world), world, 0, facts.ranks_per_node, problems);
  const Chain chain = train::build_chain(config, registry, found.mesh);
  for (Problem& problem : strategy->validate(facts, chain)) problems.push_back(std::move(problem));
  for (Problem& problem :
       train::check_dispatcher(chain, *dispatcher, found.mesh, config.dispatcher.where))
    problems.push_back(std::move(problem));
  const auto recompute = create<Recompute>(config, registry, config.recompute);
  for (Problem& problem : train::recompute_problems(*recompute, chain))
    problems.push_back(std::move(problem));
  const Row packed = chain::meta_row(row, chain.input());
  if (!problems.empty()) throw Error(std::move(problems));

  found.strategy = config.strategy.name;
  found.dispatcher = config.dispatcher.name;
  found.optimizer = config.optimizer.name;
  found.precision = config.run.precision == Precision::kBf16 ? "bf16" : "fp32";
  found.row = row;
  const WorkloadShape shape = train::workload_shape(
      packed.facts, static_cast<double>(c10::elementSize(facts.compute_dtype)));
  const int64_t stages = found.mesh.degree(Axis::kPipeline);
  found.stages.resize(static_cast<size_t>(stages));
  const std::vector<int64_t> by_unit = strategy->unit_stages(facts, chain);
  for (int unit = 0; unit < chain.size(); ++unit)
    add_unit(chain, unit, found.mesh, shape, found.stages[static_cast<size_t>(by_unit[unit])]);
  for (size_t stage = 0; stage < found.stages.size(); ++stage) {
    facts.rank = static_cast<int64_t>(stage) * (world / stages);  // its first rank
    found.stages[stage].memory = strategy->estimate(
        facts, chain, shape, static_cast<int64_t>(optimizer->state_names().size()));
    if (found.stages[stage].flops > found.stages[found.slowest].flops) found.slowest = stage;
  }
  return found;
}

}  // namespace keyseat::tool::layout
