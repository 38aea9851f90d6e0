#include "gloo_group.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "gloo_work.h"
#include "keyseat/row_bytes.h"

namespace keyseat_comm_gloo {
namespace {

c10d::ReduceOp::RedOpType reduce_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kSum:
      break;
  }
  return c10d::ReduceOp::SUM;
}

// Where data only moves, it moves as bytes: Gloo knows neither bf16 nor int8 everywhere.
at::Tensor as_bytes(const at::Tensor& tensor) { return tensor.detach().view(-1).view(at::kByte); }

std::vector<int64_t> times(std::vector<int64_t> counts, int64_t bytes) {
  for (int64_t& count : counts) count *= bytes;
  return counts;
}

// Sums are taken in a type that loses nothing on the way.
at::ScalarType sum_type(at::ScalarType type) {
  return type == at::kBFloat16 || type == at::kHalf ? at::kFloat : type;
}

at::Tensor rows_like(const at::Tensor& tensor, int64_t rows) {
  std::vector<int64_t> sizes = tensor.sizes().vec();
  sizes[0] = rows;
  return at::empty(sizes, tensor.options().requires_grad(false));
}

}  // namespace

std::unique_ptr<Work> GlooGroup::all_reduce(at::Tensor tensor, ReduceOp op) {
  const at::Tensor target = tensor.detach();
  const bool converts = sum_type(target.scalar_type()) != target.scalar_type();
  const at::Tensor summed = converts ? target.to(at::kFloat) : target;
  std::vector<at::Tensor> tensors{summed.view(-1)};
  c10d::AllreduceOptions options;
  options.reduceOp = reduce_op(op);
  auto work = group_->allreduce(tensors, options);
  std::function<void()> finish;
  if (converts) finish = [target, summed] { target.copy_(summed); };
  return make_work(std::move(work), std::move(finish), {target, summed});
}

std::unique_ptr<Work> GlooGroup::broadcast(at::Tensor tensor, int64_t root) {
  std::vector<at::Tensor> tensors{as_bytes(tensor)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  return make_work(group_->broadcast(tensors, options), {}, {tensor});
}

std::unique_ptr<Work> GlooGroup::all_gather(at::Tensor output, at::Tensor input,
                                            std::vector<int64_t> counts) {
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  const int64_t least = *std::min_element(counts.begin(), counts.end());
  if (most == least) {
    at::Tensor output_bytes = as_bytes(output), input_bytes = as_bytes(input);
    return make_work(group_->_allgather_base(output_bytes, input_bytes), {}, {output, input});
  }
  // Gloo gathers equal parts only; every rank knows all counts, so they are filled up.
  const at::Tensor own = rows_like(input, most), all = rows_like(input, most * size_);
  own.narrow(0, 0, input.size(0)).copy_(input.detach());
  at::Tensor all_bytes = as_bytes(all), own_bytes = as_bytes(own);
  const auto finish = [output = output.detach(), all, counts, most] {
    int64_t row = 0;
    for (size_t rank = 0; rank < counts.size(); ++rank) {
      const auto first = static_cast<int64_t>(rank) * most;
      output.narrow(0, row, counts[rank]).copy_(all.narrow(0, first, counts[rank]));
      row += counts[rank];
    }
  };
  return make_work(group_->_allgather_base(all_bytes, own_bytes), finish, {all, own});
}

c10::intrusive_ptr<c10d::Work> GlooGroup::exchange(const at::Tensor& output,
                                                   const at::Tensor& input,
                                                   const std::vector<int64_t>& output_counts,
                                                   const std::vector<int64_t>& input_counts) {
  at::Tensor output_bytes = as_bytes(output), input_bytes = as_bytes(input);
  std::vector<int64_t> come = times(output_counts, keyseat::row_bytes(output));
  std::vector<int64_t> go = times(input_counts, keyseat::row_bytes(input));
  return group_->alltoall_base(output_bytes, input_bytes, come, go);
}

std::unique_ptr<Work> GlooGroup::reduce_scatter(at::Tensor output, at::Tensor input,
                                                std::vector<int64_t> counts) {
  const int64_t rows = counts[rank_];
  const at::Tensor parts = rows_like(input, rows * size_);
  auto work = exchange(parts, input, std::vector<int64_t>(size_, rows), counts);
  const auto finish = [output = output.detach(), parts, rows, size = size_] {
    const at::ScalarType type = sum_type(parts.scalar_type());
    const at::Tensor sum = parts.narrow(0, 0, rows).to(type, /*non_blocking=*/false, /*copy=*/true);
    for (int64_t rank = 1; rank < size; ++rank) sum.add_(parts.narrow(0, rank * rows, rows));
    output.copy_(sum);
  };
  return make_work(std::move(work), finish, {parts, input});
}

std::unique_ptr<Work> GlooGroup::all_to_all(at::Tensor output, at::Tensor input,
                                            std::vector<int64_t> output_counts,
                                            std::vector<int64_t> input_counts) {
  return make_work(exchange(output, input, output_counts, input_counts), {}, {output, input});
}

std::unique_ptr<Work> GlooGroup::send(at::Tensor tensor, int64_t to) {
  std::vector<at::Tensor> tensors{as_bytes(tensor)};
  return make_message_work(group_->send(tensors, static_cast<int>(to), /*tag=*/0), tensor);
}

std::unique_ptr<Work> GlooGroup::receive(at::Tensor tensor, int64_t from) {
  std::vector<at::Tensor> tensors{as_bytes(tensor)};
  return make_message_work(group_->recv(tensors, static_cast<int>(from), /*tag=*/0), tensor);
}

std::unique_ptr<Work> GlooGroup::begin_barrier() { return make_work(group_->barrier(), {}, {}); }

}  // namespace keyseat_comm_gloo
