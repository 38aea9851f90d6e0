#pragma once
// Runs of bin/keyseat train on the tiny model, which can be stopped from outside, and what they
// leave.

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace keyseat_runs {

namespace fs = std::filesystem;
using nlohmann::json;

// A folder that is removed with the object.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  fs::path operator/(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

// How a command ended.
struct Ending {
  int status = -1;  // exit status; -1 where a signal ended it
  int signal = 0;
  std::string out, err;
};

// A command that is under way. Killed with the object.
class Command {
 public:
  explicit Command(std::vector<std::string> arguments);  // of bin/keyseat
  ~Command();
  Command(const Command&) = delete;

  bool running();
  void send(int signal);
  void send_to_child(int signal, int child);  // children in the order of their start, from 0
  std::string err() const;                    // what it wrote to stderr so far
  // Waits at most `seconds`, then kills it.
  Ending wait(double seconds = 120);

 private:
  pid_t pid_ = -1;
  fs::path out_, err_;
  int wait_status_ = 0;
  bool ended_ = false;
};

// `keyseat train tests/runs/tiny.toml --set run.dir=DIR` and `more`.
std::vector<std::string> train_arguments(const fs::path& run_dir,
                                         const std::vector<std::string>& more = {});
Ending train(const fs::path& run_dir, const std::vector<std::string>& more = {});

// The command on so many ranks of this machine.
std::vector<std::string> launched(int ranks, const std::vector<std::string>& command);
std::vector<std::string> joined(std::vector<std::string> first,
                                const std::vector<std::string>& second);
// Ends the test where it does not, with what it wrote to stderr.
void must_succeed(const std::vector<std::string>& arguments);

// Polls until `condition`, the command's end, or the time is up; says whether the condition came.
bool wait_until(Command& command, const std::function<bool()>& condition, double seconds = 60);

// The lines of metrics.jsonl that can be parsed.
std::vector<json> metrics_of(const fs::path& run_dir);
size_t steps_done(const fs::path& run_dir);
std::string bytes_of(const fs::path& file);

// What must be the same in two runs of one configuration: of every step its number, losses, norms,
// learning rate and samples; of evaluations everything.
std::vector<json> results_of(const fs::path& run_dir);

bool has(const std::string& text, const std::string& part);

}  // namespace keyseat_runs
