// One group: a communicator of NCCL and a stream.
#pragma once

#include <nccl.h>  // NCCL's; the plugin's own is "nccl.h" of this folder

#include <c10/cuda/CUDAStream.h>

#include <memory>
#include <vector>

#include "keyseat/interfaces/comm.h"

namespace keyseat_comm_nccl {

using keyseat::ReduceOp;
using keyseat::Work;

// The communicator, shared with the operations in flight.
class Communicator {
 public:
  Communicator(const ncclUniqueId& id, int64_t rank, int64_t size);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  ncclComm_t get() const { return comm_; }
  // Throws Error (R2) where NCCL has found a failure meanwhile.
  void check() const;
  void abort();

 private:
  ncclComm_t comm_ = nullptr;
  std::atomic<bool> aborted_{false};
};

class NcclGroup final : public keyseat::CommGroup {
 public:
  NcclGroup(const ncclUniqueId& id, int64_t rank, int64_t size, at::Device device);
  int64_t size() const override { return size_; }
  int64_t rank() const override { return rank_; }
  std::unique_ptr<Work> all_reduce(at::Tensor tensor, ReduceOp op) override;
  std::unique_ptr<Work> broadcast(at::Tensor tensor, int64_t root) override;
  std::unique_ptr<Work> all_gather(at::Tensor output, at::Tensor input,
                                   std::vector<int64_t> counts) override;
  std::unique_ptr<Work> reduce_scatter(at::Tensor output, at::Tensor input,
                                       std::vector<int64_t> counts) override;
  std::unique_ptr<Work> all_to_all(at::Tensor output, at::Tensor input,
                                   std::vector<int64_t> output_counts,
                                   std::vector<int64_t> input_counts) override;
  std::unique_ptr<Work> send(at::Tensor tensor, int64_t to) override;
  std::unique_ptr<Work> receive(at::Tensor tensor, int64_t from) override;
  std::unique_ptr<Work> begin_barrier() override;
  void abort() { communicator_->abort(); }

 private:
  // Runs `enqueue` on the group's stream behind what the current stream holds.
  template <typename Function>
  std::unique_ptr<Work> begin(std::vector<at::Tensor> held, const Function& enqueue,
                              bool host_waits = false);
  // Where the tensor lies on the host: `call` on the copy, whose result comes back with the wait.
  template <typename Function>
  std::unique_ptr<Work> staged(const at::Tensor& host, const Function& call);
  at::Tensor on_device(const at::Tensor& host) const { return host.detach().to(stream_.device()); }
  std::shared_ptr<Communicator> communicator_;
  int64_t rank_, size_;
  c10::cuda::CUDAStream stream_;
};

}  // namespace keyseat_comm_nccl
