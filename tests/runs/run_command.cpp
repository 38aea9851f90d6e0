#include "tests/runs/run_command.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace keyseat_runs {

namespace {

int next_number() {
  static int number = 0;
  return number++;
}

}  // namespace

Scratch::Scratch()
    : path_(fs::temp_directory_path() /
            fmt::format("keyseat_runs_{}_{}", ::getpid(), next_number())) {
  fs::create_directories(path_);
}

Scratch::~Scratch() { fs::remove_all(path_); }

Command::Command(std::vector<std::string> arguments) {
  const fs::path bin = fs::canonical("/proc/self/exe").parent_path() / "keyseat";
  const std::string stem = fmt::format("keyseat_command_{}_{}", ::getpid(), next_number());
  out_ = fs::temp_directory_path() / (stem + ".out");
  err_ = fs::temp_directory_path() / (stem + ".err");
  arguments.insert(arguments.begin(), bin.string());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const int flags = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_addopen(&actions, 1, out_.c_str(), flags, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err_.c_str(), flags, 0600);
  const int failed = posix_spawn(&pid_, bin.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  REQUIRE(failed == 0);
}

Command::~Command() {
  if (!ended_) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, &wait_status_, 0);
  }
  fs::remove(out_);
  fs::remove(err_);
}

bool Command::running() {
  if (!ended_) ended_ = ::waitpid(pid_, &wait_status_, WNOHANG) == pid_;
  return !ended_;
}

void Command::send(int signal) {
  if (!ended_) ::kill(pid_, signal);
}

void Command::send_to_child(int signal, int child) {
  std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", pid_));
  pid_t pid = -1;
  for (int passed = 0; passed <= child; ++passed) REQUIRE(static_cast<bool>(children >> pid));
  REQUIRE(::kill(pid, signal) == 0);
}

std::string Command::err() const { return bytes_of(err_); }

Ending Command::wait(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (running()) {
    if (std::chrono::steady_clock::now() > end) {
      ::kill(pid_, SIGKILL);
      ended_ = ::waitpid(pid_, &wait_status_, 0) == pid_;
      FAIL_CHECK("the command ran past its time");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  Ending ending;
  if (WIFEXITED(wait_status_)) ending.status = WEXITSTATUS(wait_status_);
  if (WIFSIGNALED(wait_status_)) ending.signal = WTERMSIG(wait_status_);
  ending.out = bytes_of(out_);
  ending.err = bytes_of(err_);
  return ending;
}

std::vector<std::string> train_arguments(const fs::path& run_dir,
                                         const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"train", "tests/runs/tiny.toml", "--set",
                                     "run.dir=" + run_dir.string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

Ending train(const fs::path& run_dir, const std::vector<std::string>& more) {
  return Command(train_arguments(run_dir, more)).wait();
}

std::vector<std::string> joined(std::vector<std::string> first,
                                const std::vector<std::string>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

std::vector<std::string> launched(int ranks, const std::vector<std::string>& command) {
  return joined({"launch", "-n", std::to_string(ranks), "--"}, command);
}

void must_succeed(const std::vector<std::string>& arguments) {
  const Ending ending = Command(arguments).wait();
  REQUIRE_MESSAGE(ending.status == 0, ending.err);
}

bool wait_until(Command& command, const std::function<bool()>& condition, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (condition()) return true;
    if (!command.running()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

std::vector<json> metrics_of(const fs::path& run_dir) {
  std::ifstream stream(run_dir / "metrics.jsonl");
  std::vector<json> lines;
  for (std::string text; std::getline(stream, text);) {
    json line = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (line.is_object()) lines.push_back(std::move(line));
  }
  return lines;
}

size_t steps_done(const fs::path& run_dir) {
  const std::string text = bytes_of(run_dir / "metrics.jsonl");
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

std::string bytes_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

std::vector<json> results_of(const fs::path& run_dir) {
  std::vector<json> results;
  for (const json& line : metrics_of(run_dir)) {
    json result;
    for (const auto& [name, value] : line.items()) {
      const bool measured = name == "seconds" || name == "milliseconds" || name == "host_seconds" ||
                            name.ends_with("_per_second") || name.starts_with("peak_memory") ||
                            name.starts_with("memory_peak");
      if (!measured) result[name] = value;
    }
    results.push_back(std::move(result));
  }
  return results;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace keyseat_runs
