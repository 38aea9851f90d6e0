// An operation on a stream of the plugin.
#pragma once

#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <vector>

#include "nccl_group.h"

namespace keyseat_comm_nccl {

// A CUDA event without timing.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  void record(const c10::cuda::CUDAStream& stream);
  void block(const c10::cuda::CUDAStream& stream) const;  // later work of the stream waits
  bool done() const;
  // Polls, with `check` in between, until it is done or the time is over; says which.
  bool wait_for(double seconds, const std::function<void()>& check) const;

 private:
  cudaEvent_t event_ = nullptr;
};

class NcclWork final : public Work {
 public:
  // `host_waits`: wait_for is over only when the device is there (barrier); else the current stream
  // waits and the host goes on.
  NcclWork(std::shared_ptr<Communicator> communicator, const c10::cuda::CUDAStream& stream,
           std::vector<at::Tensor> held, bool host_waits);
  bool wait_for(double seconds) override;

 private:
  std::shared_ptr<Communicator> communicator_;
  Event event_;
  std::vector<at::Tensor> held_;
  bool host_waits_;
};

// A call on tensors of the host: it runs on copies, and what it wrote comes back when it is waited
// for, which the host does.
class StagedWork final : public Work {
 public:
  // `work` has been begun on `stream` and writes `device`, the copy of `host`.
  StagedWork(std::unique_ptr<Work> work, const c10::cuda::CUDAStream& stream, at::Tensor host,
             at::Tensor device);
  bool wait_for(double seconds) override;

 private:
  std::unique_ptr<Work> work_;
  Event event_;
  at::Tensor host_, device_;
  bool done_ = false;
};

// Throws Error (R2) with NCCL's text.
void require(ncclResult_t result, const char* what);

}  // namespace keyseat_comm_nccl
