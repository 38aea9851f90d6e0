// One group: turns collectives into streams.
#pragma once

#include <memory>
#include <vector>

#include "engine.h"
#include "keyseat/interfaces/comm.h"

namespace keyseat_comm_shm {

using keyseat::ReduceOp;
using keyseat::Work;

class ShmGroup final : public keyseat::CommGroup {
 public:
  ShmGroup(std::shared_ptr<Engine> engine, std::vector<int64_t> ranks, int64_t rank)
      : engine_(std::move(engine)), ranks_(std::move(ranks)), rank_(rank) {}
  int64_t size() const override { return static_cast<int64_t>(ranks_.size()); }
  int64_t rank() const override { return rank_; }
  // Every rank adds up a share of the elements, then all gather the shares. A small tensor goes to
  // all ranks whole: one exchange instead of two.
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

 private:
  std::unique_ptr<Work> begin(OperationPointer operation);
  void reduce_whole(const at::Tensor& tensor, ReduceFunction function,
                    const OperationPointer& operation);
  void reduce_shares(const at::Tensor& tensor, ReduceFunction function,
                     const OperationPointer& operation);
  std::shared_ptr<Engine> engine_;
  std::vector<int64_t> ranks_;  // global
  int64_t rank_;                // within the group
};

}  // namespace keyseat_comm_shm
