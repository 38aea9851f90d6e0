// One group of comm/recorded_comm.h.
#pragma once

#include "comm/recorded_comm.h"

namespace keyseat::comm {

class RecordedGroup final : public CommGroup {
 public:
  // `inner` null: a group of this rank alone, whose collectives are copies.
  RecordedGroup(CommGroup* inner, std::vector<int64_t> ranks, CommChannel channel, CallLog& log);
  int64_t size() const override { return static_cast<int64_t>(ranks_.size()); }
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

 private:
  template <typename Function>
  std::unique_ptr<Work> begin(CallRecord record, const Function& call);
  CallRecord record(CallKind kind, const at::Tensor& tensor, std::vector<int64_t> counts) const;
  void require(bool condition, CallKind kind, const std::string& rule) const;
  void require_tensor(CallKind kind, const char* name, const at::Tensor& tensor) const;
  void require_rank(CallKind kind, int64_t rank) const;
  void require_counts(CallKind kind, const std::vector<int64_t>& counts, int64_t rows) const;
  void require_pair(CallKind kind, const at::Tensor& output, const at::Tensor& input) const;

  CommGroup* inner_;
  std::vector<int64_t> ranks_;
  CommChannel channel_;
  CallLog& log_;
  int64_t rank_ = 0;
};

}  // namespace keyseat::comm
