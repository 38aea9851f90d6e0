#include "tools/keyseat/light/launch/supervisor.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/failure_report.h"
#include "errors/merge.h"

namespace keyseat::tool {
namespace {

constexpr int kPollMilliseconds = 100;

// Reads what is there; closes the descriptor and sets it to -1 at its end.
template <typename Function>
void read_available(int& descriptor, const Function& take) {
  char buffer[16384];
  while (descriptor >= 0) {
    const ssize_t got = read(descriptor, buffer, sizeof(buffer));
    if (got > 0) {
      take(std::string_view(buffer, static_cast<size_t>(got)));
    } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
      close(descriptor);
      descriptor = -1;
    } else if (errno == EAGAIN) {
      return;
    }
  }
}

std::function<void(std::string_view)> printer(std::FILE* out, std::string prefix) {
  return [out, prefix = std::move(prefix)](std::string_view line) {
    fmt::print(out, "{}{}\n", prefix, line);
    std::fflush(out);
  };
}

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
  return set;
}

void say(const std::string& text) { fmt::print(stderr, "keyseat launch: {}\n", text); }

}  // namespace

Supervisor::Supervisor(LaunchPlan plan, bool plain_results, double grace_seconds)
    : plan_(std::move(plan)), plain_results_(plain_results), grace_(grace_seconds) {
  const sigset_t set = watched_signals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signals_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

Supervisor::~Supervisor() {
  for (const Watched& rank : ranks_) {
    if (rank.process.ended()) continue;
    send_signal(rank.process, SIGKILL);
    waitpid(rank.process.pid, nullptr, 0);
  }
  if (signals_ >= 0) close(signals_);
}

int Supervisor::run() {
  start_all();
  while (!all_ended()) {
    wait_for_events();
    read_signals();
    read_output();
    reap();
    end_stragglers();
  }
  read_output();  // what was written before the end
  return conclude();
}

void Supervisor::start_all() {
  ranks_.reserve(static_cast<size_t>(plan_.ranks));
  for (int rank = 0; rank < plan_.ranks; ++rank) {
    const std::string prefix = fmt::format("[{}] ", rank);
    const bool plain = plain_results_ && rank == 0;
    ranks_.push_back({start_rank(plan_, rank), Lines(printer(stdout, plain ? "" : prefix)),
                      Lines(printer(stderr, prefix)), ""});
  }
  close(plan_.socket);
  plan_.socket = -1;
}

void Supervisor::wait_for_events() {
  std::vector<pollfd> events{{signals_, POLLIN, 0}};
  for (const Watched& rank : ranks_) {
    for (const int descriptor : {rank.process.output, rank.process.errors, rank.process.report}) {
      if (descriptor >= 0) events.push_back({descriptor, POLLIN, 0});
    }
  }
  poll(events.data(), events.size(), kPollMilliseconds);
}

void Supervisor::read_output() {
  for (Watched& rank : ranks_) {
    read_available(rank.process.output, [&](std::string_view bytes) { rank.output.add(bytes); });
    read_available(rank.process.errors, [&](std::string_view bytes) { rank.errors.add(bytes); });
    read_available(rank.process.report, [&](std::string_view bytes) { rank.report += bytes; });
  }
}

void Supervisor::read_signals() {
  signalfd_siginfo info;
  while (read(signals_, &info, sizeof(info)) == sizeof(info)) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal != SIGCHLD) stop_on_signal(signal);
  }
}

// The first time the ranks are asked to stop (they end at the same step); then they are killed.
void Supervisor::stop_on_signal(int signal) {
  ++interrupts_;
  if (interrupts_ == 1) {
    say(fmt::format("{}: asking the ranks to stop; again kills them", strsignal(signal)));
  }
  for (const Watched& rank : ranks_) {
    send_signal(rank.process, interrupts_ == 1 ? signal : SIGKILL);
  }
}

void Supervisor::reap() {
  for (Watched& rank : ranks_) {
    int status = 0;
    while (!rank.process.ended() &&
           waitpid(rank.process.pid, &status, WNOHANG | WUNTRACED | WCONTINUED) > 0) {
      if (WIFSTOPPED(status)) {
        rank.process.state = RankProcess::State::kStopped;
      } else if (WIFCONTINUED(status)) {
        rank.process.state = RankProcess::State::kRunning;
      } else {
        rank.process.wait_status = status;
        note_end(rank);
      }
    }
  }
}

void Supervisor::note_end(Watched& rank) {
  kill(-rank.process.pid, SIGKILL);  // what it started and left behind
  rank.process.state = RankProcess::State::kEnded;
  order_of_ends_.push_back(rank.process.rank);
  if (!rank.process.failed() || kill_at_ != Clock::time_point::max()) return;
  kill_at_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(grace_);
}

// After a failure the other ranks find out by themselves and say what they were doing; those that
// do not, and those that are stopped and never will, are killed.
void Supervisor::end_stragglers() {
  if (kill_at_ == Clock::time_point::max()) return;
  const bool only_stopped = std::all_of(ranks_.begin(), ranks_.end(), [](const Watched& rank) {
    return rank.process.state != RankProcess::State::kRunning;
  });
  if (!only_stopped && Clock::now() < kill_at_) return;
  for (Watched& rank : ranks_) {
    if (rank.process.ended() || rank.process.killed_here) continue;
    const bool stopped = rank.process.state == RankProcess::State::kStopped;
    say(fmt::format(
        "rank {} (process {}) {}; it is killed", rank.process.rank, rank.process.pid,
        stopped ? "is stopped by a signal"
                : fmt::format("did not end within {} s of the first failure", grace_.count())));
    rank.process.killed_here = true;
    rank.process.was_stopped = stopped;
    send_signal(rank.process, SIGKILL);
  }
  kill_at_ = Clock::now() + std::chrono::hours(24 * 365);  // once
}

bool Supervisor::all_ended() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const Watched& rank) { return rank.process.ended(); });
}

// A rank that only lost a peer, or was killed here for lagging behind, is not the cause; one that
// somebody had stopped is.
const Supervisor::Watched* Supervisor::first_failure() const {
  const Watched* stopped = nullptr;
  const Watched* lost = nullptr;
  for (const int index : order_of_ends_) {
    const Watched& rank = ranks_[static_cast<size_t>(index)];
    if (!rank.process.failed()) continue;
    const auto report = parse_failure_report(rank.report);
    const bool is_lost = report && report->lost_a_peer;
    if (!is_lost && !rank.process.killed_here) return &rank;
    if (rank.process.was_stopped) stopped = &rank;
    if (is_lost && lost == nullptr) lost = &rank;
  }
  return stopped != nullptr ? stopped : lost;
}

int Supervisor::conclude() {
  std::vector<RankText> texts;
  for (Watched& rank : ranks_) {
    rank.output.finish();
    rank.errors.finish();
    const auto report = parse_failure_report(rank.report);
    if (!report || !rank.process.failed()) continue;
    for (const std::string& text : report->texts) texts.push_back({rank.process.rank, text});
  }
  if (!texts.empty()) {
    fmt::print(stderr, "{}\n", merged_text(texts, static_cast<int64_t>(ranks_.size())));
  }
  const Watched* const first = first_failure();
  if (first == nullptr) return 0;
  const auto failed = std::count_if(ranks_.begin(), ranks_.end(),
                                    [](const Watched& rank) { return rank.process.failed(); });
  if (interrupts_ > 0) return first->process.exit_status();  // as asked
  say(fmt::format("rank {} (process {}) failed first, with {}; {} of {} ranks failed",
                  first->process.rank, first->process.pid, first->process.how_it_ended(), failed,
                  ranks_.size()));
  return first->process.exit_status();
}

}  // namespace keyseat::tool
