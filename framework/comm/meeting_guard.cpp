#include "comm/meeting_guard.h"

#include <chrono>

#include "comm/last_words.h"

namespace keyseat::comm {

MeetingGuard::MeetingGuard(double seconds, Problem problem) {
  thread_ = std::thread([this, seconds, problem = std::move(problem)] {
    std::unique_lock<std::mutex> lock(mutex_);
    const bool met =
        changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return over_; });
    if (!met) end_process(problem, /*lost=*/true);
  });
}

MeetingGuard::~MeetingGuard() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

}  // namespace keyseat::comm
