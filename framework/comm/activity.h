// What this rank is doing, for the others to know when it is lost.
#pragma once

#include <chrono>
#include <mutex>
#include <string>

#include "comm/call_record.h"
#include "keyseat/export.h"

namespace keyseat::comm {

struct ActivityState {
  std::string call;         // last collective: CallRecord::text(); empty: none yet
  std::string unit;         // that runs or ran last: "decoder.layers.3 forward"
  bool waiting = false;     // in the wait of a collective
  double idle_seconds = 0;  // since anything of this changed
};

class KEYSEAT_API Activity {
 public:
  void set_unit(std::string unit);
  std::string unit() const;
  void set_call(CallRecord call);
  void set_waiting(bool waiting);
  ActivityState state() const;

 private:
  using Clock = std::chrono::steady_clock;
  mutable std::mutex mutex_;
  CallRecord call_;  // ticket 0: none yet
  std::string unit_;
  bool waiting_ = false;
  Clock::time_point changed_ = Clock::now();
};

}  // namespace keyseat::comm
