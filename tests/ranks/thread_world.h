// What the ranks of a ThreadWorld share: rounds of collectives, the record of calls, failure.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/call_record.h"
#include "tests/ranks/thread_comm.h"

namespace keyseat::test {

using comm::CallKind;

// One rank's side of an operation. Sizes are in rows (elements of dimension 0).
struct Call {
  CallKind kind = CallKind::kBarrier;
  at::Tensor output = {};  // where results go in wait()
  at::Tensor input = {};  // a snapshot, so that the caller's memory is never read by another thread
  std::vector<int64_t> counts = {};  // all_gather, reduce_scatter; input counts of all_to_all
  std::vector<int64_t> output_counts = {};  // all_to_all
  ReduceOp op = ReduceOp::kSum;
  int64_t root = 0;
  CommChannel channel = CommChannel::kCompute;

  std::string text() const;
};

// An operation on its way: one call per rank of the group.
struct Round {
  explicit Round(std::vector<int64_t> ranks) : ranks(std::move(ranks)), calls(this->ranks.size()) {}
  std::vector<int64_t> ranks;
  std::vector<std::optional<Call>> calls;
  bool complete() const;
};

// Empty where the calls belong together, else what differs.
std::string mismatch(const Round& round);
// Writes the results of rank `member` of a complete round into its output.
void deliver(const Round& round, size_t member);

class ThreadWorldState {
 public:
  explicit ThreadWorldState(ThreadWorldOptions options);
  const ThreadWorldOptions& options() const { return options_; }

  // Enters rank `member` of `ranks` into its next round. Messages are rounds of {sender, receiver}.
  std::shared_ptr<Round> post(const std::vector<int64_t>& ranks, size_t member, Call call);
  // Throws R2 where the world failed, or where the round stays incomplete for the time-out.
  void wait(const Round& round, size_t member);
  void note_unwaited(const Round& round, size_t member);

  void fail(std::exception_ptr error);  // the first one counts; wakes everybody
  // What can only be seen at the end: open rounds, Works that nobody waited for, orders.
  void check_end();
  std::exception_ptr failure();
  std::vector<RecordedCall> take_calls(int64_t rank);

 private:
  struct Sequence {  // of one group, or of one direction between two ranks
    std::vector<size_t> next;
    std::map<size_t, std::shared_ptr<Round>> open;
  };
  void record(int64_t rank, const std::vector<int64_t>& ranks, const Call& call);
  void fail_locked(std::exception_ptr error);
  void throw_if_failed_locked(int64_t rank) const;
  std::string order_problem() const;
  bool same_node(int64_t a, int64_t b) const;

  const ThreadWorldOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::exception_ptr failure_;
  std::string failure_text_;
  std::map<std::pair<bool, std::vector<int64_t>>, Sequence> sequences_;  // bool: messages
  std::vector<std::vector<std::vector<int64_t>>> order_;                 // per rank, of collectives
  std::vector<std::vector<RecordedCall>> recorded_;                      // per rank
  std::vector<std::optional<std::thread::id>> threads_;                  // that launch, per rank
  std::string unwaited_;
};

}  // namespace keyseat::test
