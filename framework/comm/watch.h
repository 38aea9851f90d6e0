// Rank 0's judgement on the signs of life of all ranks. Pure: time is given, so that tests need
// none.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/activity.h"
#include "comm/call_check.h"

namespace keyseat::comm {

// Why the job has to end.
struct Verdict {
  int64_t rank = -1;   // the cause; -1: no single rank
  std::string text;    // what, one sentence
  std::string detail;  // last collective and unit of the ranks concerned
};

class KEYSEAT_API Watch {
 public:
  // limit_seconds: silence, or a stand-still that others wait for, that is too long.
  Watch(int64_t world, double limit_seconds);

  void set_name(int64_t rank, std::string name);  // "process 4711 on gpu1"
  // A sign of life at time `now` (seconds of any clock).
  void hear(int64_t rank, ActivityState state, double now);
  void ended(int64_t rank);  // said goodbye
  // This process did not run for so long; nobody else is to blame.
  void excuse(double seconds);

  // Its connection ended without a goodbye.
  Verdict died(int64_t rank) const;
  Verdict failed(int64_t rank) const;  // it says so itself
  static Verdict disagree(const CallCheck::Mismatch& mismatch);
  std::optional<Verdict> judge(double now) const;
  bool all_ended() const;
  bool has_ended(int64_t rank) const { return ranks_[static_cast<size_t>(rank)].ended; }

 private:
  struct Rank {
    std::string name;
    ActivityState state;
    double heard = -1;  // never: not watched yet
    bool ended = false;
    double idle(double now) const { return state.idle_seconds + (now - heard); }
  };
  std::string called(int64_t rank) const;  // "rank 1 (process 4711 on gpu1)"
  std::string last_of(int64_t rank) const;
  std::optional<Verdict> silent(double now) const;
  std::optional<Verdict> stalled(double now) const;
  double limit_;
  std::vector<Rank> ranks_;
};

}  // namespace keyseat::comm
