// A `keyseat launch` under test.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace keyseat::comm_test {

struct LaunchResult {
  int status = -1;     // exit status; 128 + signal
  std::string output;  // stdout and stderr
  double seconds = 0;  // from start to end
  bool has(const std::string& text) const { return output.find(text) != std::string::npos; }
};

// A hang, not a measure: what waits for a launch ends after so many seconds.
inline constexpr double kLaunchLimit = 240;

double now();  // seconds, monotonic

class Launched {
 public:
  // keyseat launch -n RANKS --program keyseat_comm_rank -- ARGUMENTS --token (one of its own)
  Launched(int ranks, const std::vector<std::string>& arguments);
  // keyseat ARGUMENTS, as they are.
  explicit Launched(std::vector<std::string> arguments);
  ~Launched();  // kills it
  Launched(const Launched&) = delete;

  pid_t pid() const { return pid_; }
  // Processes with its token, by rank; -1 where that rank is not there (yet, or any more).
  std::vector<pid_t> rank_processes() const;
  int64_t processes_left() const;
  // Until the output has the text; false after `seconds`.
  bool wait_for_output(const std::string& text, double seconds);
  // Until it ends; it is killed after `seconds`.
  LaunchResult wait(double seconds);

 private:
  void start(const std::vector<std::string>& arguments);
  void read_output();
  int ranks_ = 0;
  std::string token_;
  pid_t pid_ = -1;
  int pipe_ = -1;
  double begin_ = 0;
  std::string output_;
};

// Names in /dev/shm.
std::vector<std::string> shared_memory_names();

}  // namespace keyseat::comm_test
