// This process among the ranks of a run: where they meet, what they agree on, how they watch over
// one another.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/launch_environment.h"
#include "comm/activity.h"
#include "keyseat/interfaces/comm.h"

namespace c10d {
class Store;
}

namespace keyseat::comm {

class Monitor;

class KEYSEAT_API World {
 public:
  // Meets the other ranks: all of them come within the time-out, or R2 names those that did not. In
  // a world of one there is nobody to meet.
  World(const LaunchEnvironment& environment, double timeout_seconds);
  ~World();
  World(const World&) = delete;

  int64_t rank() const { return environment_.rank; }
  int64_t size() const { return environment_.world; }
  bool leads() const { return environment_.rank == 0; }  // writes files and prints results
  Rendezvous rendezvous(at::Device device) const;

  // Throws C5 where the ranks do not all have the same lines, with both sides of what differs.
  // Every rank calls it, and all throw the same.
  void agree(const std::string& what, const std::vector<std::string>& lines);

  Monitor* monitor() { return monitor_.get(); }  // null in a world of one
  Activity& activity();

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point deadline() const;  // of what begins now
  std::string wait_for(const std::string& key, const std::string& what, Clock::time_point end);
  std::vector<int64_t> missing(const std::string& key) const;
  LaunchEnvironment environment_;
  double timeout_seconds_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::unique_ptr<Monitor> monitor_;
  Activity alone_;
};

// The lines of `a` that differ from those of `b`, and the other way round, as "a: ..., b: ...".
KEYSEAT_API std::string difference(const std::string& name_a, const std::vector<std::string>& a,
                                   const std::string& name_b, const std::vector<std::string>& b);

}  // namespace keyseat::comm
