#include "nccl_work.h"

#include <c10/cuda/CUDAException.h>
#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "keyseat/status.h"

namespace keyseat_comm_nccl {

using keyseat::Code;
using keyseat::Error;
using keyseat::Problem;

void require(ncclResult_t result, const char* what) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  throw Error(Problem{Code::kR2Communication,
                      {},
                      fmt::format("comm/nccl: {} failed: {}", what, ncclGetErrorString(result)),
                      ncclGetLastError(nullptr),
                      "NCCL_DEBUG=INFO in the environment makes NCCL say more."});
}

Event::Event() { C10_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }

Event::~Event() { C10_CUDA_CHECK_WARN(cudaEventDestroy(event_)); }

void Event::record(const c10::cuda::CUDAStream& stream) {
  C10_CUDA_CHECK(cudaEventRecord(event_, stream.stream()));
}

void Event::block(const c10::cuda::CUDAStream& stream) const {
  C10_CUDA_CHECK(cudaStreamWaitEvent(stream.stream(), event_, 0));
}

bool Event::done() const {
  const cudaError_t state = cudaEventQuery(event_);
  if (state == cudaSuccess) return true;
  if (state != cudaErrorNotReady) C10_CUDA_CHECK(state);
  (void)cudaGetLastError();  // "not ready" is no error
  return false;
}

bool Event::wait_for(double seconds, const std::function<void()>& check) const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!done()) {
    check();
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

NcclWork::NcclWork(std::shared_ptr<Communicator> communicator, const c10::cuda::CUDAStream& stream,
                   std::vector<at::Tensor> held, bool host_waits)
    : communicator_(std::move(communicator)), held_(std::move(held)), host_waits_(host_waits) {
  event_.record(stream);
}

bool NcclWork::wait_for(double seconds) {
  communicator_->check();
  if (!host_waits_) {
    event_.block(c10::cuda::getCurrentCUDAStream());
    return true;
  }
  return event_.wait_for(seconds, [this] { communicator_->check(); });
}

StagedWork::StagedWork(std::unique_ptr<Work> work, const c10::cuda::CUDAStream& stream,
                       at::Tensor host, at::Tensor device)
    : work_(std::move(work)), host_(std::move(host)), device_(std::move(device)) {
  event_.record(stream);
}

bool StagedWork::wait_for(double seconds) {
  if (done_) return true;
  // The work only makes the current stream wait; what it checks is that NCCL has found no failure.
  if (!event_.wait_for(seconds, [this] { work_->wait_for(0); })) return false;
  work_->wait_for(0);
  host_.copy_(device_);
  done_ = true;
  return true;
}

}  // namespace keyseat_comm_nccl
