// comm/self: the communicator of a world of one rank. Collectives are copies or nothing at all, but
// every rule of the interface is checked as if there were peers.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "keyseat/interfaces/comm.h"

namespace keyseat_comm_self {

class SelfGroup final : public keyseat::CommGroup {
 public:
  int64_t size() const override { return 1; }
  int64_t rank() const override { return 0; }
  std::unique_ptr<keyseat::Work> all_reduce(at::Tensor tensor, keyseat::ReduceOp op) override;
  std::unique_ptr<keyseat::Work> broadcast(at::Tensor tensor, int64_t root) override;
  std::unique_ptr<keyseat::Work> all_gather(at::Tensor output, at::Tensor input,
                                            std::vector<int64_t> counts) override;
  std::unique_ptr<keyseat::Work> reduce_scatter(at::Tensor output, at::Tensor input,
                                                std::vector<int64_t> counts) override;
  std::unique_ptr<keyseat::Work> all_to_all(at::Tensor output, at::Tensor input,
                                            std::vector<int64_t> output_counts,
                                            std::vector<int64_t> input_counts) override;
  // A message to oneself: send keeps a copy, receive takes the oldest one. A receive before its
  // send would wait for ever, so it is R2.
  std::unique_ptr<keyseat::Work> send(at::Tensor tensor, int64_t to) override;
  std::unique_ptr<keyseat::Work> receive(at::Tensor tensor, int64_t from) override;
  std::unique_ptr<keyseat::Work> begin_barrier() override;

 private:
  std::mutex mutex_;
  std::deque<at::Tensor> messages_;
};

class Self final : public keyseat::Comm {
 public:
  static keyseat::OptionSchema options() { return {}; }
  Self(const keyseat::Options& options, const keyseat::PluginHost& host);
  keyseat::Problems validate(const keyseat::Rendezvous& rendezvous) const override;
  void connect(const keyseat::Rendezvous& rendezvous) override;
  keyseat::CommGroup& group(const std::vector<int64_t>& ranks,
                            keyseat::CommChannel channel) override;

 private:
  bool connected_ = false;
  SelfGroup group_;  // the only group there is
};

}  // namespace keyseat_comm_self
