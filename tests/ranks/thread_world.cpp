#include "tests/ranks/thread_world.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "keyseat/status.h"

namespace keyseat::test {
namespace {

Error communication_error(std::string what) {
  return Error(Problem{Code::kR2Communication, {}, std::move(what), "", ""});
}

int64_t bytes_of_rows(const at::Tensor& tensor, int64_t rows) {
  if (!tensor.defined() || tensor.size(0) == 0) return 0;
  return static_cast<int64_t>(tensor.nbytes()) / tensor.size(0) * rows;
}

// What the direct form of the operation sends from rank `from` of the group to rank `to`.
int64_t bytes_sent(const Call& call, size_t from, size_t to, size_t size) {
  switch (call.kind) {
    case CallKind::kAllGather:
    case CallKind::kSend:
      return static_cast<int64_t>(call.input.nbytes());
    case CallKind::kReduceScatter:
    case CallKind::kAllToAll:
      return bytes_of_rows(call.input, call.counts[to]);
    case CallKind::kBroadcast:
      return static_cast<size_t>(call.root) == from ? static_cast<int64_t>(call.input.nbytes()) : 0;
    case CallKind::kAllReduce:  // a reduce-scatter and an all-gather of equal parts
      return 2 * static_cast<int64_t>(call.input.nbytes() / size);
    case CallKind::kReceive:
    case CallKind::kBarrier:
      return 0;
  }
  return 0;
}

}  // namespace

ThreadWorldState::ThreadWorldState(ThreadWorldOptions options)
    : options_(options),
      order_(static_cast<size_t>(options.world)),
      recorded_(static_cast<size_t>(options.world)),
      threads_(static_cast<size_t>(options.world)) {}

bool ThreadWorldState::same_node(int64_t a, int64_t b) const {
  return options_.ranks_per_node <= 0 || a / options_.ranks_per_node == b / options_.ranks_per_node;
}

void ThreadWorldState::record(int64_t rank, const std::vector<int64_t>& ranks, const Call& call) {
  RecordedCall recorded{call.text().substr(0, call.text().find(' ')), ranks, call.channel};
  const auto from =
      static_cast<size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  for (size_t to = 0; to < ranks.size(); ++to) {
    if (to == from) continue;
    const int64_t bytes = bytes_sent(call, from, to, ranks.size());
    (same_node(rank, ranks[to]) ? recorded.sent.intra : recorded.sent.inter) += bytes;
  }
  recorded_[static_cast<size_t>(rank)].push_back(std::move(recorded));
  if (!comm::is_message(call.kind)) order_[static_cast<size_t>(rank)].push_back(ranks);
}

std::shared_ptr<Round> ThreadWorldState::post(const std::vector<int64_t>& ranks, size_t member,
                                              Call call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int64_t rank = ranks[member];
  throw_if_failed_locked(rank);
  auto& thread = threads_[static_cast<size_t>(rank)];
  if (thread.value_or(std::this_thread::get_id()) != std::this_thread::get_id()) {
    throw Error(Problem{Code::kR4Contract,
                        {},
                        fmt::format("rank {} launches collectives from two threads", rank),
                        "",
                        ""});
  }
  thread = std::this_thread::get_id();
  record(rank, ranks, call);
  Sequence& sequence = sequences_[{comm::is_message(call.kind), ranks}];
  sequence.next.resize(ranks.size(), 0);
  const size_t number = sequence.next[member]++;
  std::shared_ptr<Round>& round = sequence.open[number];
  if (round == nullptr) round = std::make_shared<Round>(ranks);
  round->calls[member] = std::move(call);
  std::shared_ptr<Round> result = round;
  if (result->complete()) {
    sequence.open.erase(number);
    const std::string difference = mismatch(*result);
    if (!difference.empty()) {
      fail_locked(std::make_exception_ptr(communication_error(difference)));
      throw_if_failed_locked(rank);
    }
    changed_.notify_all();
  }
  return result;
}

void ThreadWorldState::wait(const Round& round, size_t member) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto done = [&] { return failure_ != nullptr || round.complete(); };
  const auto limit = std::chrono::duration<double>(options_.timeout_seconds);
  if (!changed_.wait_for(lock, limit, done)) {
    std::vector<int64_t> missing;
    for (size_t i = 0; i < round.calls.size(); ++i) {
      if (!round.calls[i].has_value()) missing.push_back(round.ranks[i]);
    }
    fail_locked(std::make_exception_ptr(communication_error(
        fmt::format("rank {} waited {} s in the group [{}] for {}; ranks [{}] did not come",
                    round.ranks[member], options_.timeout_seconds, fmt::join(round.ranks, ", "),
                    round.calls[member]->text(), fmt::join(missing, ", ")))));
  }
  if (!round.complete()) throw_if_failed_locked(round.ranks[member]);
}

void ThreadWorldState::note_unwaited(const Round& round, size_t member) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!unwaited_.empty()) return;
  unwaited_ = fmt::format("rank {} did not wait for its {}", round.ranks[member],
                          round.calls[member]->text());
}

void ThreadWorldState::fail(std::exception_ptr error) {
  const std::lock_guard<std::mutex> lock(mutex_);
  fail_locked(std::move(error));
}

void ThreadWorldState::fail_locked(std::exception_ptr error) {
  if (failure_ == nullptr) {
    failure_ = error;
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& exception) {
      failure_text_ = exception.what();
    } catch (...) {
      failure_text_ = "a failed assertion";
    }
  }
  changed_.notify_all();
}

void ThreadWorldState::throw_if_failed_locked(int64_t rank) const {
  if (failure_ == nullptr) return;
  throw communication_error(fmt::format("rank {} stops: {}", rank, failure_text_));
}

// Two ranks that are both in several groups must issue the calls of these groups in one order.
std::string ThreadWorldState::order_problem() const {
  for (size_t a = 0; a < order_.size(); ++a) {
    for (size_t b = a + 1; b < order_.size(); ++b) {
      std::vector<std::vector<int64_t>> shared[2];
      for (int side = 0; side < 2; ++side) {
        const size_t own = side == 0 ? a : b, other = side == 0 ? b : a;
        for (const auto& ranks : order_[own]) {
          if (std::find(ranks.begin(), ranks.end(), static_cast<int64_t>(other)) != ranks.end()) {
            shared[side].push_back(ranks);
          }
        }
      }
      if (shared[0] != shared[1]) {
        return fmt::format("ranks {} and {} issued the calls of their groups in different orders",
                           a, b);
      }
    }
  }
  return {};
}

void ThreadWorldState::check_end() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (failure_ != nullptr) return;
  std::string what = unwaited_;
  for (const auto& [key, sequence] : sequences_) {
    for (const auto& [number, round] : sequence.open) {
      for (size_t i = 0; i < round->calls.size() && what.empty(); ++i) {
        if (!round->calls[i].has_value()) continue;
        what = fmt::format("rank {} is alone at the end in the group [{}] with {}", round->ranks[i],
                           fmt::join(round->ranks, ", "), round->calls[i]->text());
      }
    }
  }
  if (what.empty()) what = order_problem();
  if (!what.empty()) fail_locked(std::make_exception_ptr(communication_error(what)));
}

std::exception_ptr ThreadWorldState::failure() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

std::vector<RecordedCall> ThreadWorldState::take_calls(int64_t rank) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(recorded_[static_cast<size_t>(rank)], {});
}

}  // namespace keyseat::test
