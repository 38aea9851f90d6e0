#include "comm/last_words.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <thread>

#include "base/failure_report.h"
#include "comm/monitor.h"
#include "plugin/load.h"

namespace keyseat::comm {
namespace {

std::atomic<bool> has_terminated{false};

[[noreturn]] void on_terminate() {
  constexpr auto kMoment = std::chrono::seconds(2);
  const std::string text =
      std::current_exception() ? current_exception_text() : "std::terminate was called";
  if (!has_terminated.exchange(true)) std::this_thread::sleep_for(kMoment);
  const Problem problem{
      Code::kR2Communication, {}, "a thread ended with an exception: " + text, "", ""};
  end_process(problem, /*lost=*/false);
  for (;;) pause();  // another thread is ending the process
}

}  // namespace

void catch_terminate() { std::set_terminate(on_terminate); }

bool terminating() { return has_terminated; }

bool claim_last_words() {
  static std::atomic<bool> claimed{false};
  return !claimed.exchange(true);
}

void end_process(const Problem& problem, bool lost) {
  if (!claim_last_words()) return;
  const std::string text = problem.text();
  if (!send_failure_report({lost, {text}})) fmt::print(stderr, "{}\n", text);
  std::fflush(nullptr);
  _exit(exit_status(problem.code));
}

int say_last_words(const std::vector<std::string>& texts, int status) {
  const bool over = job_is_over();
  if (over && !claim_last_words()) pause();  // the monitor is about to end this process
  if (!send_failure_report({lost_a_peer(), texts})) {
    for (const std::string& text : texts) fmt::print(stderr, "{}\n", text);
  }
  if (!over) return status;
  std::fflush(nullptr);
  _exit(status);
}

int say_last_words(const Problems& problems) {
  std::vector<std::string> texts;
  for (const Problem& problem : problems) texts.push_back(problem.text());
  return say_last_words(texts, problems.empty() ? 1 : exit_status(problems.front().code));
}

}  // namespace keyseat::comm
