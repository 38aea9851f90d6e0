#include "train/update.h"

#include "train/step_counts.h"

namespace keyseat::train {

Update::Update(const Chain& chain, Strategy& strategy, Optimizer& optimizer,
               std::map<std::string, BlockFactors> factors)
    : strategy_(strategy), optimizer_(optimizer), factors_(std::move(factors)) {
  for (const ChainUnit& unit : chain.units()) {
    for (const std::string& name : unit.param_names) block_of_[name] = unit.block;
    if (!unit.param_names.empty()) rows_of_[unit.block].push_back(unit.unit->spec().rows);
    if (unit.trainable) updates_.emplace(unit.block, 0);
  }
}

void Update::set_updates(std::map<std::string, int64_t> updates) {
  for (auto& [block, count] : updates_) {
    const auto found = updates.find(block);
    count = found == updates.end() ? 0 : found->second;
  }
}

void Update::step(double lr, double grad_scale, const RowCounts& total) {
  auto& shards = strategy_.shards(static_cast<int64_t>(optimizer_.state_names().size()));
  std::set<std::string> active;
  for (auto& [block, count] : updates_) {
    const std::vector<DimSymbol>& symbols = rows_of_[block];
    const bool saw_rows = std::any_of(symbols.begin(), symbols.end(),
                                      [&](DimSymbol symbol) { return rows_of(symbol, total) > 0; });
    if (!saw_rows) continue;
    active.insert(block);
    ++count;
  }
  std::vector<OptimizerShard> taking_part;
  taking_part.reserve(shards.size());
  for (const OptimizerShard& shard : shards) {
    const std::string& block = block_of_.at(shard.name);
    if (!active.contains(block)) continue;
    taking_part.push_back(shard);
    const BlockFactors& factors = factors_[block];
    taking_part.back().lr = lr * factors.lr;
    taking_part.back().weight_decay_scale = factors.weight_decay;
    taking_part.back().grad_scale = grad_scale;
    taking_part.back().step = updates_.at(block);
  }
  optimizer_.step(taking_part);
  strategy_.after_update();
}

}  // namespace keyseat::train
