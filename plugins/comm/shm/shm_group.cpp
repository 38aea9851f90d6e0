#include "shm_group.h"

#include <fmt/format.h>

#include <cstring>

#include "keyseat/row_bytes.h"
#include "keyseat/status.h"

namespace keyseat_comm_shm {
namespace {

constexpr size_t kSmall = 16384;  // bytes that all_reduce sends to every rank whole

class ShmWork final : public Work {
 public:
  ShmWork(std::shared_ptr<Engine> engine, OperationPointer operation)
      : engine_(std::move(engine)), operation_(std::move(operation)) {}
  bool wait_for(double seconds) override { return engine_->wait_for(*operation_, seconds); }

 private:
  std::shared_ptr<Engine> engine_;
  OperationPointer operation_;
};

OperationPointer operation_with(std::vector<at::Tensor> held) {
  auto operation = std::make_shared<Operation>();
  operation->held = std::move(held);
  return operation;
}

char* bytes_of(const at::Tensor& tensor) { return static_cast<char*>(tensor.data_ptr()); }

ReduceFunction function_or_throw(const at::Tensor& tensor, ReduceOp op) {
  const ReduceFunction function = reduce_function(tensor.scalar_type(), op);
  if (function != nullptr) return function;
  throw keyseat::Error(keyseat::Problem{
      keyseat::Code::kR4Contract,
      {},
      fmt::format("comm/shm does not reduce {}", c10::toString(tensor.scalar_type())),
      "reductions take fp32, fp64, bf16 and int64",
      ""});
}

void copy_own(char* to, const char* from, size_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace

std::unique_ptr<Work> ShmGroup::begin(OperationPointer operation) {
  engine_->progress();
  return std::make_unique<ShmWork>(engine_, std::move(operation));
}

void ShmGroup::reduce_whole(const at::Tensor& tensor, ReduceFunction function,
                            const OperationPointer& operation) {
  const at::Tensor sent = tensor.clone();  // the result takes the tensor's place while it goes out
  operation->held.push_back(sent);
  for (int64_t peer = 0; peer < size(); ++peer) {
    if (peer != rank_) {
      engine_->send(ranks_[peer], kCollectives, bytes_of(sent), tensor.nbytes(), operation);
    }
  }
  engine_->receive_reduced(
      {bytes_of(tensor), tensor.nbytes(), 0, function, ranks_, bytes_of(sent), operation});
}

void ShmGroup::reduce_shares(const at::Tensor& tensor, ReduceFunction function,
                             const OperationPointer& operation) {
  const auto lines = static_cast<int64_t>((tensor.nbytes() + kLine - 1) / kLine);
  std::vector<size_t> at;
  for (int64_t share = 0; share <= size(); ++share) {
    at.push_back(std::min(tensor.nbytes(), static_cast<size_t>(lines * share / size()) * kLine));
  }
  char* const data = bytes_of(tensor);
  for (int64_t peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    engine_->send(ranks_[peer], kCollectives, data + at[peer], at[peer + 1] - at[peer], operation);
  }
  char* const own = data + at[rank_];
  const size_t own_bytes = at[rank_ + 1] - at[rank_];
  engine_->receive_reduced({own, own_bytes, 0, function, ranks_, own, operation});
  for (int64_t peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    engine_->send(ranks_[peer], kCollectives, own, own_bytes, operation, /*after_reduction=*/true);
    // Comes only after the peer has taken, and added, what lies there now.
    engine_->receive(ranks_[peer], kCollectives, data + at[peer], at[peer + 1] - at[peer],
                     operation);
  }
}

std::unique_ptr<Work> ShmGroup::all_reduce(at::Tensor tensor, ReduceOp op) {
  const ReduceFunction function = function_or_throw(tensor, op);
  const OperationPointer operation = operation_with({tensor});
  if (tensor.nbytes() <= kSmall) {
    reduce_whole(tensor.detach(), function, operation);
  } else {
    reduce_shares(tensor.detach(), function, operation);
  }
  return begin(operation);
}

std::unique_ptr<Work> ShmGroup::broadcast(at::Tensor tensor, int64_t root) {
  const OperationPointer operation = operation_with({tensor});
  for (int64_t peer = 0; root == rank_ && peer < size(); ++peer) {
    if (peer == rank_) continue;
    engine_->send(ranks_[peer], kCollectives, bytes_of(tensor), tensor.nbytes(), operation);
  }
  if (root != rank_) {
    engine_->receive(ranks_[root], kCollectives, bytes_of(tensor), tensor.nbytes(), operation);
  }
  return begin(operation);
}

std::unique_ptr<Work> ShmGroup::all_gather(at::Tensor output, at::Tensor input,
                                           std::vector<int64_t> counts) {
  const OperationPointer operation = operation_with({output, input});
  const std::vector<size_t> at = keyseat::part_offsets(counts, keyseat::row_bytes(output));
  copy_own(bytes_of(output) + at[rank_], bytes_of(input), input.nbytes());
  for (int64_t peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    engine_->send(ranks_[peer], kCollectives, bytes_of(input), input.nbytes(), operation);
    engine_->receive(ranks_[peer], kCollectives, bytes_of(output) + at[peer],
                     at[peer + 1] - at[peer], operation);
  }
  return begin(operation);
}

std::unique_ptr<Work> ShmGroup::reduce_scatter(at::Tensor output, at::Tensor input,
                                               std::vector<int64_t> counts) {
  const ReduceFunction function = function_or_throw(input, ReduceOp::kSum);
  const OperationPointer operation = operation_with({output, input});
  const std::vector<size_t> at = keyseat::part_offsets(counts, keyseat::row_bytes(input));
  for (int64_t peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    engine_->send(ranks_[peer], kCollectives, bytes_of(input) + at[peer], at[peer + 1] - at[peer],
                  operation);
  }
  engine_->receive_reduced({bytes_of(output), output.nbytes(), 0, function, ranks_,
                            bytes_of(input) + at[rank_], operation});
  return begin(operation);
}

std::unique_ptr<Work> ShmGroup::all_to_all(at::Tensor output, at::Tensor input,
                                           std::vector<int64_t> output_counts,
                                           std::vector<int64_t> input_counts) {
  const OperationPointer operation = operation_with({output, input});
  const int64_t bytes = keyseat::row_bytes(output);
  const std::vector<size_t> to = keyseat::part_offsets(output_counts, bytes),
                            from = keyseat::part_offsets(input_counts, bytes);
  copy_own(bytes_of(output) + to[rank_], bytes_of(input) + from[rank_], to[rank_ + 1] - to[rank_]);
  for (int64_t peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    engine_->send(ranks_[peer], kCollectives, bytes_of(input) + from[peer],
                  from[peer + 1] - from[peer], operation);
    engine_->receive(ranks_[peer], kCollectives, bytes_of(output) + to[peer],
                     to[peer + 1] - to[peer], operation);
  }
  return begin(operation);
}

std::unique_ptr<Work> ShmGroup::send(at::Tensor tensor, int64_t to) {
  const OperationPointer operation = operation_with({tensor});
  engine_->send(ranks_[to], kMessages, bytes_of(tensor), tensor.nbytes(), operation);
  return begin(operation);
}

std::unique_ptr<Work> ShmGroup::receive(at::Tensor tensor, int64_t from) {
  const OperationPointer operation = operation_with({tensor});
  engine_->receive(ranks_[from], kMessages, bytes_of(tensor), tensor.nbytes(), operation);
  return begin(operation);
}

std::unique_ptr<Work> ShmGroup::begin_barrier() {
  static const char kSign = 1;
  static char received;
  const OperationPointer operation = operation_with({});
  for (int64_t peer = 0; peer < size(); ++peer) {
    if (peer == rank_) continue;
    engine_->send(ranks_[peer], kCollectives, &kSign, 1, operation);
    engine_->receive(ranks_[peer], kCollectives, &received, 1, operation);
  }
  return begin(operation);
}

}  // namespace keyseat_comm_shm
