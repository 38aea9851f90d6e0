#include "tools/keyseat/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "keyseat/status.h"

extern char** environ;  // POSIX leaves its declaration to the programme

namespace keyseat::tool {
namespace {

[[noreturn]] void cannot_start(int error) {
  throw Error(Problem{
      Code::kR7File, {}, std::string("could not start a child: ") + std::strerror(error), "", ""});
}

using Clock = std::chrono::steady_clock;

// Reads until the other end closes; false where `deadline` passes first.
bool read_until(int descriptor, std::string& text, const Clock::time_point* deadline) {
  char buffer[4096];
  for (;;) {
    int wait_ms = -1;
    if (deadline != nullptr) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now());
      if (left.count() <= 0) return false;
      wait_ms = static_cast<int>(left.count());
    }
    pollfd one{descriptor, POLLIN, 0};
    const int ready = poll(&one, 1, wait_ms);
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    const ssize_t got = read(descriptor, buffer, sizeof(buffer));
    if (got > 0) text.append(buffer, static_cast<size_t>(got));
    if (got == 0 || (got < 0 && errno != EINTR)) return true;
  }
}

}  // namespace

ChildResult run_keyseat(const std::vector<std::string>& arguments, double limit_seconds) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) cannot_start(errno);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  std::string name = "keyseat";
  std::vector<std::string> copies = arguments;
  std::vector<char*> argv{name.data()};
  for (std::string& argument : copies) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t child = 0;
  const int error = posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    cannot_start(error);
  }
  ChildResult result;
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(limit_seconds));
  if (!read_until(ends[0], result.output, limit_seconds > 0 ? &deadline : nullptr)) {
    result.timed_out = true;
    kill(child, SIGKILL);
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status) && !result.timed_out) result.signal = WTERMSIG(status);
  if (WIFEXITED(status)) result.exit_status = WEXITSTATUS(status);
  return result;
}

}  // namespace keyseat::tool
