#include "comm/activity.h"

#include <utility>

namespace keyseat::comm {

void Activity::set_unit(std::string unit) {
  const std::lock_guard<std::mutex> lock(mutex_);
  unit_ = std::move(unit);
  changed_ = Clock::now();
}

std::string Activity::unit() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return unit_;
}

void Activity::set_call(CallRecord call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  call_ = std::move(call);
  changed_ = Clock::now();
}

void Activity::set_waiting(bool waiting) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (waiting_ == waiting) return;
  waiting_ = waiting;
  changed_ = Clock::now();
}

ActivityState Activity::state() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const double idle = std::chrono::duration<double>(Clock::now() - changed_).count();
  return {call_.ticket > 0 ? call_.text() : "", unit_, waiting_, idle};
}

}  // namespace keyseat::comm
