// Test support: a world whose ranks are threads of this process, and their communicator.
//
//   ThreadWorld world({.world = 4, .ranks_per_node = 2});
//   world.run([&](int64_t rank, ThreadComm& comm) { ... CHECK(...) ... });
//
// Stricter than a real communicator: outputs hold NaN (or a sentinel) until wait() returns, and
// every call is compared between the ranks of its group. A mismatch, a rank that stays away longer
// than the time-out, a Work that nobody waits for and groups whose calls two ranks issue in
// different orders all end the run with an Error; the first failure of a rank is what run() throws.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "keyseat/interfaces/comm.h"

namespace keyseat::test {

// Bytes that a rank sent to ranks of its own node and to those of other nodes. A collective counts
// what its direct form would send: every part once to every rank that needs it.
struct LinkBytes {
  int64_t intra = 0, inter = 0;
  LinkBytes& operator+=(const LinkBytes& other) {
    intra += other.intra;
    inter += other.inter;
    return *this;
  }
  bool operator==(const LinkBytes&) const = default;
};

// One call as it was recorded on one rank.
struct RecordedCall {
  std::string kind;            // "all_to_all"
  std::vector<int64_t> ranks;  // of the group
  CommChannel channel = CommChannel::kCompute;
  LinkBytes sent = {};
};

struct ThreadWorldOptions {
  int64_t world = 2;
  int64_t ranks_per_node = 0;  // 0: all ranks are one node
  double timeout_seconds = 20;
};

class ThreadWorldState;  // what the threads share

class ThreadComm final : public Comm {
 public:
  ThreadComm(std::shared_ptr<ThreadWorldState> state, int64_t rank);
  ~ThreadComm() override;
  void connect(const Rendezvous& rendezvous) override;  // nothing to do: the world exists
  // The calls of all channels are compared in one order, which no real communicator asks for.
  CommGroup& group(const std::vector<int64_t>& ranks,
                   CommChannel channel = CommChannel::kCompute) override;

  // The calls of this rank since the last take_calls().
  std::vector<RecordedCall> take_calls();
  LinkBytes take_sent();  // the sum over take_calls()

 private:
  std::shared_ptr<ThreadWorldState> state_;
  int64_t rank_;
  std::vector<std::unique_ptr<CommGroup>> groups_;
};

class ThreadWorld {
 public:
  explicit ThreadWorld(ThreadWorldOptions options) : options_(options) {}
  // Runs `rank_main` on one thread per rank, each with one compute thread, and joins them.
  void run(const std::function<void(int64_t rank, ThreadComm& comm)>& rank_main);

 private:
  ThreadWorldOptions options_;
};

}  // namespace keyseat::test
