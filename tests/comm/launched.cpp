#include "tests/comm/launched.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

namespace keyseat::comm_test {
namespace {

namespace fs = std::filesystem;

fs::path folder_of_executables() { return fs::canonical("/proc/self/exe").parent_path(); }

std::string contents(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// Of the variables of a process; empty where it is not set.
std::string variable(const std::string& environment, const std::string& name) {
  size_t at = 0;
  while (at < environment.size()) {
    const std::string entry = environment.c_str() + at;
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
    at += entry.size() + 1;
  }
  return "";
}

}  // namespace

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Launched::Launched(int ranks, const std::vector<std::string>& arguments) : ranks_(ranks) {
  static int count = 0;
  token_ = fmt::format("token-{}-{}", getpid(), ++count);
  std::vector<std::string> all{"launch",
                               "-n",
                               std::to_string(ranks),
                               "--program",
                               (folder_of_executables() / "keyseat_comm_rank").string(),
                               "--"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  all.insert(all.end(), {"--token", token_});
  start(all);
}

Launched::Launched(std::vector<std::string> arguments) { start(arguments); }

void Launched::start(const std::vector<std::string>& arguments) {
  begin_ = now();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  const std::string program = (folder_of_executables() / "keyseat").string();
  std::vector<std::string> copies = arguments;
  std::string name = "keyseat";
  std::vector<char*> argv{name.data()};
  for (std::string& argument : copies) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    execv(program.c_str(), argv.data());
    _exit(127);
  }
  close(ends[1]);
  pipe_ = ends[0];
  fcntl(pipe_, F_SETFL, O_NONBLOCK);
}

Launched::~Launched() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (pipe_ >= 0) close(pipe_);
}

std::vector<pid_t> Launched::rank_processes() const {
  std::vector<pid_t> found(static_cast<size_t>(ranks_), -1);
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string line = contents(entry.path() / "cmdline");
    if (line.find(token_) == std::string::npos || std::stoi(name) == pid_) continue;
    const std::string rank = variable(contents(entry.path() / "environ"), "RANK");
    if (!rank.empty()) found[static_cast<size_t>(std::stoi(rank))] = std::stoi(name);
  }
  return found;
}

int64_t Launched::processes_left() const {
  const std::vector<pid_t> found = rank_processes();
  return std::count_if(found.begin(), found.end(), [](pid_t pid) { return pid > 0; });
}

void Launched::read_output() {
  char buffer[4096];
  for (ssize_t got = 0; (got = read(pipe_, buffer, sizeof(buffer))) > 0;) {
    output_.append(buffer, static_cast<size_t>(got));
  }
}

bool Launched::wait_for_output(const std::string& text, double seconds) {
  for (const double end = now() + seconds; now() < end;) {
    read_output();
    if (output_.find(text) != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

LaunchResult Launched::wait(double seconds) {
  LaunchResult result;
  int status = 0;
  const double end = now() + seconds;
  for (bool killed = false; pid_ > 0;) {
    read_output();
    const pid_t ended = waitpid(pid_, &status, WNOHANG);
    if (ended == pid_) {
      pid_ = -1;
    } else if (now() > end && !killed) {
      killed = true;
      output_ += "\n(killed by the test)\n";
      kill(pid_, SIGKILL);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  result.seconds = now() - begin_;
  read_output();
  result.output = output_;
  result.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

std::vector<std::string> shared_memory_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator("/dev/shm")) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace keyseat::comm_test
