#include "train/norms.h"

#include <ATen/ops/empty.h>

#include "train/grad_norm.h"

namespace keyseat::train {

namespace {

// [gradients, masters] of every group, summed over the ranks that share it.
std::vector<std::array<double, 2>> group_squares(const std::vector<NormGroup>& groups,
                                                 const Mesh& mesh, Comm& comm, bool parameters) {
  std::vector<std::vector<at::Tensor>> lists;
  for (const NormGroup& group : groups) {
    lists.push_back(group.gradients);
    lists.push_back(parameters ? group.masters : std::vector<at::Tensor>{});
  }
  const std::vector<double> sums = sums_of_squares(lists);
  std::vector<std::array<double, 2>> squares;
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::vector<int64_t> ranks = mesh.group(groups[i].axes);
    std::array<double, 2> own{sums[2 * i], sums[2 * i + 1]};
    if (ranks.size() > 1) {
      const at::Tensor both = at::empty({2}, at::kDouble);
      std::copy(own.begin(), own.end(), both.data_ptr<double>());
      comm.group(ranks).all_reduce(both, ReduceOp::kSum)->wait();
      std::copy(both.data_ptr<double>(), both.data_ptr<double>() + 2, own.begin());
    }
    squares.push_back(own);
  }
  return squares;
}

}  // namespace

Norms global_norms(Strategy& strategy, const Mesh& mesh, Comm& comm, bool parameters) {
  const std::vector<NormGroup> groups = strategy.norm_groups();
  const auto squares = group_squares(groups, mesh, comm, parameters);
  Norms norms;
  double total = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    total += squares[i][0];
    norms.block_gradient[groups[i].block] += squares[i][0];
    if (parameters) norms.block_parameter[groups[i].block] += squares[i][1];
  }
  norms.gradient = std::sqrt(total);
  for (auto& [block, square] : norms.block_gradient) square = std::sqrt(square);
  for (auto& [block, square] : norms.block_parameter) square = std::sqrt(square);
  return norms;
}

double clip_coefficient(double norm, double clip) {
  return clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1.0;
}

}  // namespace keyseat::train
