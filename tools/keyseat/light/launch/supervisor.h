#pragma once
// Watches the ranks of a launch until all have ended.

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tools/keyseat/light/launch/lines.h"
#include "tools/keyseat/light/launch/rank_process.h"

namespace keyseat::tool {

class Supervisor {
 public:
  // `plain_results`: stdout of rank 0 is passed on without a prefix, for programs that read it.
  // `grace_seconds`: what the other ranks get to end by themselves after the first failure.
  Supervisor(LaunchPlan plan, bool plain_results, double grace_seconds);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;

  // Starts all ranks, passes their output on, returns the exit status: that of the first rank that
  // failed, 0 where none did. On return no rank is left.
  int run();

 private:
  using Clock = std::chrono::steady_clock;
  struct Watched {
    RankProcess process;
    Lines output, errors;
    std::string report;
  };

  void start_all();
  void wait_for_events();
  void read_output();
  void read_signals();
  void reap();
  void note_end(Watched& rank);
  void stop_on_signal(int signal);
  void end_stragglers();
  int conclude();
  const Watched* first_failure() const;
  bool all_ended() const;

  LaunchPlan plan_;
  bool plain_results_;
  std::chrono::duration<double> grace_;
  int signals_ = -1;  // a signalfd
  std::vector<Watched> ranks_;
  std::vector<int> order_of_ends_;
  int interrupts_ = 0;
  Clock::time_point kill_at_ = Clock::time_point::max();
};

}  // namespace keyseat::tool
