#include "nn/rank_group.h"

#include "keyseat/interfaces/comm.h"
#include "keyseat/nn/exchange.h"

namespace keyseat::nn {
namespace {

at::Tensor shape_of_rows(const at::Tensor& like, int64_t rows) {
  std::vector<int64_t> shape = like.sizes().vec();
  shape[0] = rows;
  return like.new_empty(shape);
}

}  // namespace

RankGroup::RankGroup(const StepContext& context, const std::vector<Axis>& axes)
    : comm_(context.state().comm), ranks_{0} {
  const Mesh* mesh = context.state().mesh;
  if (mesh == nullptr) return;
  ranks_ = mesh->group(axes);
  rank_ = std::find(ranks_.begin(), ranks_.end(), mesh->rank()) - ranks_.begin();
}

CommGroup& RankGroup::comm() const { return comm_->group(ranks_); }

at::Tensor RankGroup::all_gather(const at::Tensor& part, const std::vector<int64_t>& counts) const {
  if (size() == 1) return part;
  if (part.is_meta()) return shape_of_rows(part, sum_of(counts));
  return begin_all_gather(comm(), part, counts).wait();
}

at::Tensor RankGroup::all_gather(const at::Tensor& part) const {
  return all_gather(part, std::vector<int64_t>(ranks_.size(), part.size(0)));
}

at::Tensor RankGroup::reduce_scatter(const at::Tensor& whole) const {
  if (size() == 1) return whole;
  const int64_t rows = whole.size(0) / size();
  if (whole.is_meta()) return shape_of_rows(whole, rows);
  return begin_reduce_scatter(comm(), whole, std::vector<int64_t>(ranks_.size(), rows)).wait();
}

at::Tensor RankGroup::all_reduce(const at::Tensor& part) const {
  if (size() == 1) return part;
  at::Tensor sum = part.clone(at::MemoryFormat::Contiguous);
  if (!part.is_meta()) comm().all_reduce(sum, ReduceOp::kSum)->wait();
  return sum;
}

}  // namespace keyseat::nn
