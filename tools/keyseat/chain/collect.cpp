#include "tools/keyseat/chain/collect.h"

#include "keyseat/interfaces/comm.h"
#include "keyseat/interfaces/dispatcher.h"
#include "keyseat/interfaces/recompute.h"
#include "tools/keyseat/chain/meta_row.h"
#include "train/build_chain.h"
#include "train/dry_run.h"
#include "train/workload.h"

namespace keyseat::tool::chain {
namespace {

UnitFacts unit_facts(const Chain& chain, int index, const WorkloadShape& shape) {
  const ChainUnit& unit = chain.units()[index];
  const UnitSpec& spec = unit.unit->spec();
  UnitFacts facts;
  facts.name = spec.name;
  facts.trained = unit.trainable;
  for (int i = 0; i < static_cast<int>(spec.params.size()); ++i) {
    if (unit.owners[i] != ParamRef{index, i}) continue;
    const ParamSpec& param = spec.params[i];
    const bool routed = param.domain == ParamDomain::kExpert;
    const auto elements = static_cast<double>(param.numel());
    facts.parameters += param.numel();
    if (routed) facts.experts += param.numel();
    facts.active +=
        routed ? elements * static_cast<double>(spec.top_k) / static_cast<double>(param.shape[0])
               : elements;
  }
  const Cost cost = unit.unit->cost(shape);
  facts.flops = cost.flops;
  if (unit.runs_backward) facts.activation_bytes = cost.activation_bytes;
  return facts;
}

BlockFacts& block_facts(ChainFacts& facts, const Chain& chain, const std::string& name) {
  for (BlockFacts& block : facts.blocks) {
    if (block.name == name) return block;
  }
  BlockFacts block;
  block.name = name;
  for (const NamedBlock& named : chain.blocks()) {
    if (named.name == name) block.plugin = named.plugin;
  }
  facts.blocks.push_back(std::move(block));
  return facts.blocks.back();
}

}  // namespace

ChainFacts collect(const RunConfig& config, Registry& registry, RowShape row) {
  const auto create = [&]<typename Interface>(const PluginChoice& choice, Interface*) {
    PluginHost host;
    host.instance = choice.instance;
    host.seed = config.run.seed;
    return registry.create<Interface>(choice.name, choice.options, host);
  };
  const auto strategy = create(config.strategy, static_cast<Strategy*>(nullptr));
  const auto dispatcher = create(config.dispatcher, static_cast<Dispatcher*>(nullptr));
  const auto recompute = create(config.recompute, static_cast<Recompute*>(nullptr));
  const auto optimizer = create(config.optimizer, static_cast<Optimizer*>(nullptr));
  const Chain chain = train::build_chain(config, registry);
  if (Problems problems = train::recompute_problems(*recompute, chain); !problems.empty())
    throw Error(std::move(problems));

  StrategyFacts strategy_facts;
  strategy_facts.compute_dtype =
      config.run.precision == Precision::kBf16 ? at::kBFloat16 : at::kFloat;
  Row packed = meta_row(row, chain.input());
  const WorkloadShape shape = train::workload_shape(
      packed.facts, static_cast<double>(c10::elementSize(strategy_facts.compute_dtype)));

  ChainFacts facts;
  facts.row = row;
  facts.strategy = config.strategy.name;
  facts.optimizer = config.optimizer.name;
  facts.recompute = config.recompute.name;
  facts.precision = config.run.precision == Precision::kBf16 ? "bf16" : "fp32";
  facts.memory = strategy->estimate(strategy_facts, chain, shape,
                                    static_cast<int64_t>(optimizer->state_names().size()));
  ExecutorServices services;
  services.dispatcher = dispatcher.get();
  services.recompute = recompute.get();
  services.compute_dtype = strategy_facts.compute_dtype;
  services.aux_pooled = config.loss.aux_scope == AuxScope::kPooled;
  const auto start = std::chrono::steady_clock::now();
  const std::vector<int64_t> live_bytes = train::dry_run(chain, services, std::move(packed));
  facts.dry_run_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  for (int index = 0; index < chain.size(); ++index) {
    const ChainUnit& unit = chain.units()[index];
    UnitFacts unit_row = unit_facts(chain, index, shape);
    unit_row.live_bytes = live_bytes[static_cast<size_t>(index)];
    unit_row.replayed =
        unit.runs_backward && recompute->replays_unit(unit.block, unit.unit->spec().name);
    BlockFacts& block = block_facts(facts, chain, unit.block);
    block.trained |= unit.trainable;
    block.units.push_back(std::move(unit_row));
  }
  return facts;
}

}  // namespace keyseat::tool::chain
