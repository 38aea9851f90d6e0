#include "train/stop_signal.h"

#include <unistd.h>
#include <atomic>
#include <csignal>

namespace keyseat::train {

namespace {

// 0, or the first signal. Two signals may be handled on two threads at once: exactly one of them is
// the first.
std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free, "what a signal handler may use");

// Only what a signal handler may do.
void on_signal(int signal) {
  int none = 0;
  if (!received.compare_exchange_strong(none, signal)) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
    return;
  }
  constexpr char kText[] =
      "keyseat: saving a checkpoint behind this step, then stopping; a second signal stops at "
      "once\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText, sizeof kText - 1);
}

void set_action(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

void watch_stop_signals() {
  set_action(SIGTERM, on_signal);
  set_action(SIGINT, on_signal);
}

bool stop_requested() { return received != 0; }

const char* stop_signal_name() {
  const int signal = received;
  return signal == SIGTERM ? "SIGTERM" : signal == SIGINT ? "SIGINT" : "";
}

void forget_stop_signals() {
  set_action(SIGTERM, SIG_DFL);
  set_action(SIGINT, SIG_DFL);
  received = 0;
}

}  // namespace keyseat::train
