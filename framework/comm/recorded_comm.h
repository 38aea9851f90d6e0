// The core's communicator around a plugin's: checks every call, numbers and records it, counts its
// bytes by link class, and ends waits where a rank is lost. Units, strategies and dispatchers get
// this one. It serves groups of one rank by itself.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "comm/traffic.h"
#include "keyseat/interfaces/comm.h"

namespace keyseat::comm {

class Activity;
class Monitor;

// What the groups of one communicator share.
struct CallLog {
  Monitor* monitor = nullptr;  // null in a world of one
  Activity* activity = nullptr;
  bool compare = false;  // every call between its ranks
  bool keep = false;     // records of all calls
  int64_t rank = 0, ranks_per_node = 1;
  int64_t tickets = 0;
  Traffic traffic;
  std::vector<CallRecord> records;

  void add(CallRecord& record);  // gives it its ticket and unit
};

class KEYSEAT_API RecordedComm final : public Comm {
 public:
  struct Settings {
    int64_t ranks_per_node = 1;
    bool compare = false;
    Monitor* monitor = nullptr;
    Activity* activity = nullptr;
  };
  RecordedComm(std::shared_ptr<Comm> inner, Settings settings);
  ~RecordedComm() override;

  Problems validate(const Rendezvous& rendezvous) const override;
  void connect(const Rendezvous& rendezvous) override;
  CommGroup& group(const std::vector<int64_t>& ranks,
                   CommChannel channel = CommChannel::kCompute) override;
  void abort() override;

  // Since the start; take the difference of two for a step.
  const Traffic& traffic() const { return log_.traffic; }
  // For tests: from now on every call is kept.
  void keep_records() { log_.keep = true; }
  const std::vector<CallRecord>& records() const { return log_.records; }

 private:
  std::shared_ptr<Comm> inner_;
  CallLog log_;
  int64_t world_ = 1;
  int uncaught_;
  std::map<std::pair<std::vector<int64_t>, CommChannel>, std::unique_ptr<CommGroup>> groups_;
};

}  // namespace keyseat::comm
