#include "train/step_sums.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

namespace keyseat::train {

StepSums sum_over_ranks(const Executor& executor, Comm& comm, int64_t world) {
  StepSums sums{executor.losses(), executor.router_stats()};
  if (world == 1) return sums;
  // fp64 holds what every rank counted, whatever their number.
  std::vector<at::Tensor> parts;
  for (const auto& [name, sum] : sums.losses) parts.push_back(at::tensor({sum}, at::kDouble));
  for (const auto& [layer, stats_2E] : sums.router_stats)
    parts.push_back(stats_2E.to(at::kDouble).reshape({-1}));
  if (parts.empty()) return sums;
  at::Tensor all = at::cat(parts);
  std::vector<int64_t> ranks(static_cast<size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  comm.group(ranks).all_reduce(all, ReduceOp::kSum)->wait();
  int64_t next = 0;
  for (auto& [name, sum] : sums.losses) sum = all.const_data_ptr<double>()[next++];
  for (auto& [layer, stats_2E] : sums.router_stats) {
    const int64_t count = stats_2E.numel();
    stats_2E = all.narrow(0, next, count).view(stats_2E.sizes()).to(at::kFloat);
    next += count;
  }
  return sums;
}

}  // namespace keyseat::train
