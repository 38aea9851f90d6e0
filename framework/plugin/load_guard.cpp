#include "plugin/load_guard.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <utility>

namespace keyseat {
namespace {

constexpr std::array<int, 5> kFatal = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE};
std::array<struct sigaction, kFatal.size()> before;
std::atomic<const std::string*> said{nullptr};

void restore() {
  for (size_t i = 0; i < kFatal.size(); ++i) ::sigaction(kFatal[i], &before[i], nullptr);
}

// Only what a signal handler may do.
void on_signal(int signal) {
  restore();
  const std::string* text = said.exchange(nullptr);
  if (text != nullptr) {
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text->data(), text->size());
  }
  std::raise(signal);
}

}  // namespace

LoadGuard::LoadGuard(std::string text) : text_(std::move(text)) {
  said = &text_;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kFatal.size(); ++i) ::sigaction(kFatal[i], &action, &before[i]);
}

LoadGuard::~LoadGuard() {
  restore();
  said = nullptr;
}

}  // namespace keyseat
