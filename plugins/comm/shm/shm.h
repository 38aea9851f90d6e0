// comm/shm: collectives of CPU tensors between the ranks of one host, through shared memory.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "keyseat/interfaces/comm.h"
#include "shm_group.h"

namespace keyseat_comm_shm {

class Shm final : public keyseat::Comm {
 public:
  static keyseat::OptionSchema options();
  static keyseat::Problems validate(const keyseat::Options& options);
  Shm(const keyseat::Options& options, const keyseat::PluginHost& host);
  keyseat::Problems validate(const keyseat::Rendezvous& rendezvous) const override;
  void connect(const keyseat::Rendezvous& rendezvous) override;
  keyseat::CommGroup& group(const std::vector<int64_t>& ranks,
                            keyseat::CommChannel channel) override;

 private:
  size_t ring_bytes_;
  int64_t rank_ = 0;
  std::shared_ptr<Engine> engine_;
  std::map<std::vector<int64_t>, std::unique_ptr<ShmGroup>> groups_;
};

}  // namespace keyseat_comm_shm
