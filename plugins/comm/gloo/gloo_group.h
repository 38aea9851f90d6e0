// One group: a ProcessGroupGloo of its own.
#pragma once

// Tells LibTorch's header to declare ProcessGroupGloo; the library has it.
#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "keyseat/interfaces/comm.h"

namespace keyseat_comm_gloo {

using keyseat::ReduceOp;
using keyseat::Work;

class GlooGroup final : public keyseat::CommGroup {
 public:
  GlooGroup(c10::intrusive_ptr<c10d::ProcessGroupGloo> group, int64_t rank, int64_t size)
      : group_(std::move(group)), rank_(rank), size_(size) {}
  int64_t size() const override { return size_; }
  int64_t rank() const override { return rank_; }
  std::unique_ptr<Work> all_reduce(at::Tensor tensor, ReduceOp op) override;
  std::unique_ptr<Work> broadcast(at::Tensor tensor, int64_t root) override;
  std::unique_ptr<Work> all_gather(at::Tensor output, at::Tensor input,
                                   std::vector<int64_t> counts) override;
  // An all_to_all of the parts and a sum in the order of ranks: Gloo has no reduce_scatter of
  // unequal parts, and none of bf16.
  std::unique_ptr<Work> reduce_scatter(at::Tensor output, at::Tensor input,
                                       std::vector<int64_t> counts) override;
  std::unique_ptr<Work> all_to_all(at::Tensor output, at::Tensor input,
                                   std::vector<int64_t> output_counts,
                                   std::vector<int64_t> input_counts) override;
  std::unique_ptr<Work> send(at::Tensor tensor, int64_t to) override;
  std::unique_ptr<Work> receive(at::Tensor tensor, int64_t from) override;
  std::unique_ptr<Work> begin_barrier() override;
  // Its threads are inside operations that never end: give them up.
  void leak() { (void)group_.release(); }

 private:
  c10::intrusive_ptr<c10d::Work> exchange(const at::Tensor& output, const at::Tensor& input,
                                          const std::vector<int64_t>& output_counts,
                                          const std::vector<int64_t>& input_counts);
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  int64_t rank_, size_;
};

}  // namespace keyseat_comm_gloo
