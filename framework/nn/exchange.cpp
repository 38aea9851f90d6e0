#include "keyseat/nn/exchange.h"

#include <ATen/ops/empty.h>

#include <numeric>

namespace keyseat::nn {
namespace {

at::Tensor output_like(const at::Tensor& input, int64_t rows) {
  std::vector<int64_t> shape = input.sizes().vec();
  shape[0] = rows;
  return at::empty(shape, input.options());
}

}  // namespace

at::Tensor Exchange::wait() {
  if (work_ != nullptr) work_->wait();
  work_.reset();
  input_.reset();
  return std::move(output_);
}

int64_t sum_of(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

Exchange begin_all_to_all(CommGroup& group, const at::Tensor& input,
                          const std::vector<int64_t>& output_counts,
                          const std::vector<int64_t>& input_counts) {
  if (!input.defined()) return {};
  const at::Tensor sent = input.contiguous();
  at::Tensor output = output_like(sent, sum_of(output_counts));
  return {output, sent, group.all_to_all(output, sent, output_counts, input_counts)};
}

Exchange begin_all_gather(CommGroup& group, const at::Tensor& input,
                          const std::vector<int64_t>& counts) {
  if (!input.defined()) return {};
  const at::Tensor sent = input.contiguous();
  at::Tensor output = output_like(sent, sum_of(counts));
  return {output, sent, group.all_gather(output, sent, counts)};
}

Exchange begin_reduce_scatter(CommGroup& group, const at::Tensor& input,
                              const std::vector<int64_t>& counts) {
  if (!input.defined()) return {};
  const at::Tensor sent = input.contiguous();
  at::Tensor output = output_like(sent, counts[static_cast<size_t>(group.rank())]);
  return {output, sent, group.reduce_scatter(output, sent, counts)};
}

void add_sent(LinkTraffic& traffic, const Mesh& mesh, int64_t to, double bytes) {
  if (to == mesh.rank()) return;
  const bool same_node = to / mesh.ranks_per_node() == mesh.rank() / mesh.ranks_per_node();
  (same_node ? traffic.intra : traffic.inter) += bytes;
}

}  // namespace keyseat::nn
