#pragma once
// One local rank as a child process.

#include <sys/types.h>

#include <string>
#include <vector>

namespace keyseat::tool {

// What all ranks of a launch share.
struct LaunchPlan {
  int ranks = 1;
  std::string program;                 // file that is run
  std::vector<std::string> arguments;  // without its own name
  int port = 0;                        // rank 0 listens on it with `socket`
  int socket = -1;
};

struct RankProcess {
  enum class State { kRunning, kStopped, kEnded };
  int rank = 0;
  pid_t pid = -1;
  int output = -1, errors = -1;  // read ends of stdout and stderr
  int report = -1;               // read end of the failure report (base/failure_report.h)
  State state = State::kRunning;
  int wait_status = 0;       // of waitpid, once ended
  bool killed_here = false;  // by the launcher, after another rank's failure
  bool was_stopped = false;  // by a signal, when it was killed

  bool ended() const { return state == State::kEnded; }
  bool failed() const { return ended() && wait_status != 0; }
  // 128 + signal where a signal ended it, as shells say.
  int exit_status() const;
  std::string how_it_ended() const;  // "exit status 4", "signal 9 (Killed)"
};

// Starts one rank in a process group of its own. It is killed when this process dies. Error (R7)
// where it cannot be started.
RankProcess start_rank(const LaunchPlan& plan, int rank);

// To the rank and whatever it started. Nothing where it has ended.
void send_signal(const RankProcess& process, int signal);

// Socket on 127.0.0.1 that listens on a free port, for rank 0; Error (R7).
int listen_on_free_port(int& port);

}  // namespace keyseat::tool
