#include "tools/keyseat/light/launch/rank_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/failure_report.h"
#include "keyseat/status.h"

namespace keyseat::tool {
namespace {

constexpr int kCannotRun = 127;  // as shells say

[[noreturn]] void cannot(const char* what, int error) {
  throw Error(
      Problem{Code::kR7File, {}, fmt::format("{}: {}", what, std::strerror(error)), "", ""});
}

struct Pipe {
  int read = -1, write = -1;
};

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) cannot("could not make a pipe", errno);
  return {ends[0], ends[1]};
}

void set_variables(const LaunchPlan& plan, int rank, int report) {
  const std::pair<const char*, std::string> variables[] = {
      {"RANK", std::to_string(rank)},
      {"WORLD_SIZE", std::to_string(plan.ranks)},
      {"LOCAL_RANK", std::to_string(rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(plan.ranks)},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", std::to_string(plan.port)},
      {"KEYSEAT_LAUNCH", "1"},
      {kReportVariable, std::to_string(report)}};
  for (const auto& [name, value] : variables) setenv(name, value.c_str(), 1);
  // LibTorch's warnings with stack traces about connections that ended; the ranks say which and
  // why.
  setenv("TORCH_CPP_LOG_LEVEL", "ERROR", /*overwrite=*/0);
  unsetenv("TORCHELASTIC_USE_AGENT_STORE");
  unsetenv("TORCHELASTIC_RESTART_COUNT");
  if (rank == 0) {
    setenv("KEYSEAT_MASTER_SOCKET", std::to_string(plan.socket).c_str(), 1);
  } else {
    unsetenv("KEYSEAT_MASTER_SOCKET");
  }
}

// Between fork and exec: the child becomes a rank. Never returns.
[[noreturn]] void become_rank(const LaunchPlan& plan, int rank, pid_t launcher, const Pipe& output,
                              const Pipe& errors, const Pipe& report) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(kCannotRun);  // it died before the line above
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  dup2(output.write, STDOUT_FILENO);
  dup2(errors.write, STDERR_FILENO);
  fcntl(report.write, F_SETFD, 0);  // stays open
  if (rank == 0) fcntl(plan.socket, F_SETFD, 0);
  set_variables(plan, rank, report.write);
  std::string name = "keyseat";
  std::vector<std::string> copies = plan.arguments;
  std::vector<char*> argv{name.data()};
  for (std::string& argument : copies) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv(plan.program.c_str(), argv.data());
  const std::string text =
      fmt::format("keyseat launch: cannot run {}: {}\n", plan.program, std::strerror(errno));
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  _exit(kCannotRun);
}

}  // namespace

int RankProcess::exit_status() const {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::string RankProcess::how_it_ended() const {
  if (!WIFSIGNALED(wait_status)) return fmt::format("exit status {}", WEXITSTATUS(wait_status));
  const int signal = WTERMSIG(wait_status);
  return fmt::format("signal {} ({})", signal, strsignal(signal));
}

RankProcess start_rank(const LaunchPlan& plan, int rank) {
  const Pipe output = make_pipe(), errors = make_pipe(), report = make_pipe();
  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid < 0) cannot("could not start a rank", errno);
  if (pid == 0) become_rank(plan, rank, launcher, output, errors, report);
  setpgid(pid, pid);  // here too, so that it holds before the first signal is sent
  for (const Pipe& pipe : {output, errors, report}) {
    close(pipe.write);
    fcntl(pipe.read, F_SETFL, O_NONBLOCK);
  }
  RankProcess process;
  process.rank = rank;
  process.pid = pid;
  process.output = output.read;
  process.errors = errors.read;
  process.report = report.read;
  return process;
}

void send_signal(const RankProcess& process, int signal) {
  if (!process.ended()) kill(-process.pid, signal);
}

int listen_on_free_port(int& port) {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) cannot("could not make a socket", errno);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(descriptor, generic, size) != 0 || listen(descriptor, SOMAXCONN) != 0 ||
      getsockname(descriptor, generic, &size) != 0) {
    cannot("could not listen on a port of 127.0.0.1", errno);
  }
  port = ntohs(address.sin_port);
  return descriptor;
}

}  // namespace keyseat::tool
