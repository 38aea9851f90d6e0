#include "tools/keyseat/chain/collect.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "keyseat/data/packing.h"
#include "keyseat/interfaces/comm.h"
#include "keyseat/interfaces/dispatcher.h"
#include "keyseat/interfaces/recompute.h"
#include "train/build_chain.h"
#include "train/dry_run.h"
#include "train/workload.h"

namespace keyseat::tool::chain {
namespace {

void refuse_row(std::string what, std::string remedy) {
  throw Error(Problem{Code::kC4Combination, {}, std::move(what), "", std::move(remedy)});
}

// One sample: an image, then text that is trained on. The image is as square as its tokens allow.
Row make_row(const RowShape& shape, const InputSpec& input) {
  Sample sample;
  const auto add = [&](int64_t count, int64_t token, int8_t type) {
    sample.tokens.insert(sample.tokens.end(), static_cast<size_t>(count), token);
    sample.token_type.insert(sample.token_type.end(), static_cast<size_t>(count), type);
  };
  if (shape.visual_tokens > 0) {
    if (input.patch_size == 0) {
      refuse_row("the model takes no images", "leave out --visual-tokens");
    }
    int64_t height = 1;
    for (int64_t side = 1; side * side <= shape.visual_tokens; ++side) {
      if (shape.visual_tokens % side == 0) height = side;
    }
    sample.grid_thw = {1, height * input.merge_size,
                       shape.visual_tokens / height * input.merge_size};
    const int64_t patches = shape.visual_tokens * input.merge_size * input.merge_size;
    const int64_t elements =
        input.channels * input.temporal_patch_size * input.patch_size * input.patch_size;
    sample.patches =
        at::empty({patches, elements}, at::TensorOptions().device(at::kMeta).dtype(at::kFloat));
    add(shape.visual_tokens, input.image_token_id, 1);
  }
  if (shape.tokens <= shape.visual_tokens) {
    refuse_row(fmt::format("a row of {} tokens cannot hold {} visual ones and text", shape.tokens,
                           shape.visual_tokens),
               "give more --tokens or fewer --visual-tokens");
  }
  add(shape.tokens - shape.visual_tokens, 0, 0);
  sample.labels.assign(sample.tokens.size(), 0);
  std::fill_n(sample.labels.begin(), shape.visual_tokens, -100);
  sample.labels.back() = -100;
  data::PackOptions options;
  options.input = input;
  return data::pack({&sample}, options);
}

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

  StrategyFacts strategy_facts;
  strategy_facts.compute_dtype =
      config.run.precision == Precision::kBf16 ? at::kBFloat16 : at::kFloat;
  Row packed = make_row(row, chain.input());
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
