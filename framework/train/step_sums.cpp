#include "train/step_sums.h"

#include <ATen/ops/zeros.h>

#include "comm/gather.h"

namespace keyseat::train {

namespace {

constexpr std::string_view kLoss = "loss.", kStats = "router.stats.";

}  // namespace

StepSums sum_over_ranks(const Executor& executor, Comm& comm, int64_t world) {
  StepSums own{executor.losses(), executor.router_stats()};
  if (world == 1) return own;
  // A rank may lack some of them (pipeline stages): the places follow from the chain.
  std::map<std::string, int64_t> loss_at;
  std::map<std::string, std::pair<int64_t, int64_t>> stats_at;  // place, experts
  int64_t size = 0;
  for (const Version& version : executor.chain().versions()) {
    if (version.name.starts_with(kLoss)) {
      if (loss_at.try_emplace(version.name.substr(kLoss.size()), size).second) ++size;
    } else if (version.name.starts_with(kStats)) {
      const int64_t experts = version.spec.dims.at(1).size;
      if (stats_at.try_emplace(version.name.substr(kStats.size()), size, experts).second) {
        size += 2 * experts;
      }
    }
  }
  const at::Tensor sums = at::zeros({size}, at::kDouble);
  for (const auto& [name, sum] : own.losses) sums.narrow(0, loss_at.at(name), 1).fill_(sum);
  for (const auto& [layer, stats] : own.router_stats) {
    const auto& [place, experts] = stats_at.at(layer);
    sums.narrow(0, place, 2 * experts).copy_(stats.view(-1));
  }
  comm::all_ranks(comm, world).all_reduce(sums, ReduceOp::kSum)->wait();
  StepSums all;
  for (const auto& [name, place] : loss_at) all.losses[name] = sums.data_ptr<double>()[place];
  for (const auto& [layer, where] : stats_at) {
    all.router_stats[layer] =
        sums.narrow(0, where.first, 2 * where.second).view({2, where.second}).to(at::kFloat);
  }
  return all;
}

}  // namespace keyseat::train
