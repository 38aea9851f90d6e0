// A limit to the time in which the ranks meet. The store waits without end for the answer of a rank
// 0 that is stopped, so this process has to be able to leave from another thread.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "keyseat/status.h"

namespace keyseat::comm {

class MeetingGuard {
 public:
  // Where this object lives longer than `seconds`, the process ends with `problem`, which is
  // another rank's doing.
  MeetingGuard(double seconds, Problem problem);
  ~MeetingGuard();
  MeetingGuard(const MeetingGuard&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace keyseat::comm
