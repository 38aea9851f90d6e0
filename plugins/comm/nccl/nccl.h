// comm/nccl: collectives of CUDA tensors. NCCL is called directly, on streams of this plugin.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "keyseat/interfaces/comm.h"

namespace keyseat_comm_nccl {

class NcclGroup;

class Nccl final : public keyseat::Comm {
 public:
  static keyseat::OptionSchema options();
  Nccl(const keyseat::Options& options, const keyseat::PluginHost& host);
  ~Nccl() override;
  keyseat::Problems validate(const keyseat::Rendezvous& rendezvous) const override;
  void connect(const keyseat::Rendezvous& rendezvous) override;
  // Every channel has a communicator and a stream of its own.
  keyseat::CommGroup& group(const std::vector<int64_t>& ranks,
                            keyseat::CommChannel channel) override;
  // Ends the kernels that wait for a peer.
  void abort() override;

 private:
  keyseat::Rendezvous rendezvous_;
  bool connected_ = false;
  std::mutex mutex_;  // abort() comes from another thread
  bool aborted_ = false;
  std::map<std::pair<std::vector<int64_t>, keyseat::CommChannel>, std::unique_ptr<NcclGroup>>
      groups_;
};

}  // namespace keyseat_comm_nccl
