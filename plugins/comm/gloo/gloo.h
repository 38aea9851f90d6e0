// comm/gloo: collectives of CPU tensors over TCP, by LibTorch's ProcessGroupGloo.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "keyseat/interfaces/comm.h"

namespace keyseat_comm_gloo {

class GlooGroup;
struct Device;  // the network interface and its thread, shared by all groups

class Gloo final : public keyseat::Comm {
 public:
  static keyseat::OptionSchema options();
  Gloo(const keyseat::Options& options, const keyseat::PluginHost& host);
  ~Gloo() override;
  keyseat::Problems validate(const keyseat::Rendezvous& rendezvous) const override;
  void connect(const keyseat::Rendezvous& rendezvous) override;
  keyseat::CommGroup& group(const std::vector<int64_t>& ranks,
                            keyseat::CommChannel channel) override;
  void abort() override { aborted_ = true; }

 private:
  std::string interface_;
  int64_t threads_;
  keyseat::Rendezvous rendezvous_;
  std::shared_ptr<Device> device_;
  std::atomic<bool> aborted_{false};
  std::map<std::pair<std::vector<int64_t>, keyseat::CommChannel>, std::unique_ptr<GlooGroup>>
      groups_;
};

}  // namespace keyseat_comm_gloo
