#include "train/update.h"

#include <ATen/ops/empty.h>

#include "train/grad_norm.h"
#include "train/step_counts.h"

namespace keyseat::train {

double global_norm(Strategy& strategy, const Mesh& mesh, Comm& comm) {
  double total = 0;
  for (const NormGroup& group : strategy.norm_groups()) {
    at::Tensor squares = at::empty({1}, at::kDouble);
    squares.data_ptr<double>()[0] = sum_of_squares(group.gradients);
    const std::vector<int64_t> ranks = mesh.group(group.axes);
    if (ranks.size() > 1) comm.group(ranks).all_reduce(squares, ReduceOp::kSum)->wait();
    total += squares.data_ptr<double>()[0];
  }
  return std::sqrt(total);
}

double clip_coefficient(double norm, double clip) {
  return clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1.0;
}

Update::Update(const Chain& chain, Strategy& strategy, Optimizer& optimizer)
    : strategy_(strategy), optimizer_(optimizer) {
  for (const ChainUnit& unit : chain.units()) {
    for (const std::string& name : unit.param_names)
      owner_[name] = {unit.block, unit.unit->spec().rows};
  }
}

void Update::step(double lr, double grad_scale, const RowCounts& total) {
  auto& shards = strategy_.shards(static_cast<int64_t>(optimizer_.state_names().size()));
  // A block takes part where any of its units saw rows: a parameter that took no part at all keeps
  // value, moments and count.
  std::set<std::string> active;
  for (const auto& [name, owner] : owner_) {
    if (rows_of(owner.rows, total) > 0) active.insert(owner.block);
  }
  std::vector<OptimizerShard> taking_part;
  taking_part.reserve(shards.size());
  for (OptimizerShard& shard : shards) {
    if (active.count(owner_.at(shard.name).block) == 0) continue;
    shard.lr = lr;
    shard.grad_scale = grad_scale;
    taking_part.push_back(shard);
    ++shard.step;  // for the next update
  }
  optimizer_.step(taking_part);
  strategy_.after_update();
}

}  // namespace keyseat::train
