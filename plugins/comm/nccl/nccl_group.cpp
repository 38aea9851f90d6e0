#include "nccl_group.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>

#include "keyseat/row_bytes.h"
#include "keyseat/status.h"
#include "nccl_work.h"

namespace keyseat_comm_nccl {
namespace {

ncclRedOp_t reduce_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kSum:
      break;
  }
  return ncclSum;
}

// Of a tensor that is reduced; bf16 has been converted before.
ncclDataType_t reduced_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    case at::kLong:
      return ncclInt64;
    default:
      throw keyseat::Error(keyseat::Problem{
          keyseat::Code::kR4Contract,
          {},
          fmt::format("comm/nccl does not reduce {}", c10::toString(tensor.scalar_type())),
          "reductions take fp32, fp64, bf16 and int64",
          ""});
  }
}

bool is_bf16(const at::Tensor& tensor) { return tensor.scalar_type() == at::kBFloat16; }

char* data(const at::Tensor& tensor) { return static_cast<char*>(tensor.data_ptr()); }

// NCCL starts what was called in between as one operation.
class GroupCall {
 public:
  GroupCall() { require(ncclGroupStart(), "ncclGroupStart"); }
  void end() { require(ncclGroupEnd(), "ncclGroupEnd"); }
};

}  // namespace

Communicator::Communicator(const ncclUniqueId& id, int64_t rank, int64_t size) {
  require(ncclCommInitRank(&comm_, static_cast<int>(size), id, static_cast<int>(rank)),
          "ncclCommInitRank");
}

Communicator::~Communicator() {
  if (aborted_ || comm_ == nullptr) return;
  (void)ncclCommDestroy(comm_);
}

void Communicator::check() const {
  ncclResult_t failure = ncclSuccess;
  if (!aborted_) require(ncclCommGetAsyncError(comm_, &failure), "ncclCommGetAsyncError");
  require(aborted_ ? ncclRemoteError : failure, "an operation in flight");
}

void Communicator::abort() {
  if (!aborted_.exchange(true)) (void)ncclCommAbort(comm_);
}

NcclGroup::NcclGroup(const ncclUniqueId& id, int64_t rank, int64_t size, at::Device device)
    : communicator_(std::make_shared<Communicator>(id, rank, size)),
      rank_(rank),
      size_(size),
      stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device.index())) {}

template <typename Function>
std::unique_ptr<Work> NcclGroup::begin(std::vector<at::Tensor> held, const Function& enqueue,
                                       bool host_waits) {
  communicator_->check();
  Event ready;
  ready.record(c10::cuda::getCurrentCUDAStream());
  ready.block(stream_);
  {
    const c10::cuda::CUDAStreamGuard guard(stream_);
    enqueue();
  }
  return std::make_unique<NcclWork>(communicator_, stream_, std::move(held), host_waits);
}

template <typename Function>
std::unique_ptr<Work> NcclGroup::staged(const at::Tensor& host, const Function& call) {
  const at::Tensor device = on_device(host);
  return std::make_unique<StagedWork>(call(device), stream_, host.detach(), device);
}

std::unique_ptr<Work> NcclGroup::all_reduce(at::Tensor tensor, ReduceOp op) {
  if (tensor.is_cpu()) {
    return staged(tensor, [&](const at::Tensor& device) { return all_reduce(device, op); });
  }
  const at::Tensor target = tensor.detach();
  const at::Tensor summed =
      is_bf16(target) ? at::empty(target.sizes(), target.options().dtype(at::kFloat)) : target;
  return begin({target, summed}, [&] {
    if (is_bf16(target)) summed.copy_(target);
    require(
        ncclAllReduce(summed.data_ptr(), summed.data_ptr(), summed.numel(), reduced_type(summed),
                      reduce_op(op), communicator_->get(), stream_.stream()),
        "ncclAllReduce");
    if (is_bf16(target)) target.copy_(summed);
  });
}

std::unique_ptr<Work> NcclGroup::broadcast(at::Tensor tensor, int64_t root) {
  if (tensor.is_cpu()) {
    return staged(tensor, [&](const at::Tensor& device) { return broadcast(device, root); });
  }
  return begin({tensor}, [&] {
    require(ncclBroadcast(tensor.data_ptr(), tensor.data_ptr(), tensor.nbytes(), ncclInt8,
                          static_cast<int>(root), communicator_->get(), stream_.stream()),
            "ncclBroadcast");
  });
}

std::unique_ptr<Work> NcclGroup::all_gather(at::Tensor output, at::Tensor input,
                                            std::vector<int64_t> counts) {
  if (output.is_cpu()) {
    return staged(output, [&](const at::Tensor& device) {
      return all_gather(device, on_device(input), counts);
    });
  }
  const std::vector<size_t> at = keyseat::part_offsets(counts, keyseat::row_bytes(output));
  const bool equal =
      std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
  return begin({output, input}, [&] {
    if (equal) {
      require(ncclAllGather(input.data_ptr(), output.data_ptr(), input.nbytes(), ncclInt8,
                            communicator_->get(), stream_.stream()),
              "ncclAllGather");
      return;
    }
    GroupCall call;
    for (int64_t peer = 0; peer < size_; ++peer) {
      if (counts[peer] == 0) continue;
      char* const part = data(output) + at[peer];
      require(
          ncclBroadcast(peer == rank_ ? data(input) : part, part, at[peer + 1] - at[peer], ncclInt8,
                        static_cast<int>(peer), communicator_->get(), stream_.stream()),
          "ncclBroadcast");
    }
    call.end();
  });
}

std::unique_ptr<Work> NcclGroup::reduce_scatter(at::Tensor output, at::Tensor input,
                                                std::vector<int64_t> counts) {
  if (output.is_cpu()) {
    return staged(output, [&](const at::Tensor& device) {
      return reduce_scatter(device, on_device(input), counts);
    });
  }
  const at::Tensor target = output.detach(), source = input.detach();
  const bool converts = is_bf16(target);
  const auto fp32 = [&](const at::Tensor& like) {
    return converts ? at::empty(like.sizes(), like.options().dtype(at::kFloat)) : like;
  };
  const at::Tensor sum = fp32(target), parts = fp32(source);
  const bool equal =
      std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
  const std::vector<size_t> at = keyseat::part_offsets(counts, keyseat::row_bytes(parts));
  return begin({target, source, sum, parts}, [&] {
    if (converts) parts.copy_(source);
    if (equal) {
      require(ncclReduceScatter(parts.data_ptr(), sum.data_ptr(), sum.numel(), reduced_type(sum),
                                ncclSum, communicator_->get(), stream_.stream()),
              "ncclReduceScatter");
    } else {
      GroupCall call;
      for (int64_t peer = 0; peer < size_; ++peer) {
        if (counts[peer] == 0) continue;
        require(ncclReduce(data(parts) + at[peer], sum.data_ptr(),
                           (at[peer + 1] - at[peer]) / parts.element_size(), reduced_type(parts),
                           ncclSum, static_cast<int>(peer), communicator_->get(), stream_.stream()),
                "ncclReduce");
      }
      call.end();
    }
    if (converts) target.copy_(sum);
  });
}

std::unique_ptr<Work> NcclGroup::all_to_all(at::Tensor output, at::Tensor input,
                                            std::vector<int64_t> output_counts,
                                            std::vector<int64_t> input_counts) {
  if (output.is_cpu()) {
    return staged(output, [&](const at::Tensor& device) {
      return all_to_all(device, on_device(input), output_counts, input_counts);
    });
  }
  const int64_t bytes = keyseat::row_bytes(output);
  const std::vector<size_t> to = keyseat::part_offsets(output_counts, bytes),
                            from = keyseat::part_offsets(input_counts, bytes);
  return begin({output, input}, [&] {
    GroupCall call;
    for (int64_t peer = 0; peer < size_; ++peer) {
      if (input_counts[peer] > 0) {
        require(ncclSend(data(input) + from[peer], from[peer + 1] - from[peer], ncclInt8,
                         static_cast<int>(peer), communicator_->get(), stream_.stream()),
                "ncclSend");
      }
      if (output_counts[peer] > 0) {
        require(ncclRecv(data(output) + to[peer], to[peer + 1] - to[peer], ncclInt8,
                         static_cast<int>(peer), communicator_->get(), stream_.stream()),
                "ncclRecv");
      }
    }
    call.end();
  });
}

std::unique_ptr<Work> NcclGroup::send(at::Tensor tensor, int64_t to) {
  if (tensor.is_cpu()) return send(on_device(tensor), to);
  return begin({tensor}, [&] {
    if (tensor.nbytes() == 0) return;
    require(ncclSend(tensor.data_ptr(), tensor.nbytes(), ncclInt8, static_cast<int>(to),
                     communicator_->get(), stream_.stream()),
            "ncclSend");
  });
}

std::unique_ptr<Work> NcclGroup::receive(at::Tensor tensor, int64_t from) {
  if (tensor.is_cpu()) {
    return staged(tensor, [&](const at::Tensor& device) { return receive(device, from); });
  }
  return begin({tensor}, [&] {
    if (tensor.nbytes() == 0) return;
    require(ncclRecv(tensor.data_ptr(), tensor.nbytes(), ncclInt8, static_cast<int>(from),
                     communicator_->get(), stream_.stream()),
            "ncclRecv");
  });
}

std::unique_ptr<Work> NcclGroup::begin_barrier() {
  const at::Tensor sign =
      at::zeros({1}, at::TensorOptions().dtype(at::kFloat).device(stream_.device()));
  return begin(
      {sign},
      [&] {
        require(ncclAllReduce(sign.data_ptr(), sign.data_ptr(), 1, ncclFloat32, ncclSum,
                              communicator_->get(), stream_.stream()),
                "ncclAllReduce");
      },
      /*host_waits=*/true);
}

}  // namespace keyseat_comm_nccl
