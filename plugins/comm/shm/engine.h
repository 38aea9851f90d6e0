// Moves the bytes of all operations in flight. Every operation is a set of streams, each to or from
// one rank; the streams of a ring pass one after the other, in the order of their operations, which
// is the same on both ends. Nothing moves but inside calls of this class.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "reduce.h"
#include "segment.h"

namespace keyseat_comm_shm {

// One operation. Streams hold it, and it holds its tensors, until all have passed.
struct Operation {
  int streams = 0;      // that have not passed
  bool reduced = true;  // the reduction, where there is one, is complete
  std::vector<at::Tensor> held;
  bool done() const { return streams == 0; }
};

using OperationPointer = std::shared_ptr<Operation>;

// Parts of several ranks that are added up as they come, in the order of `sources`.
struct Reduction {
  char* output = nullptr;
  size_t bytes = 0, done = 0;
  ReduceFunction function = nullptr;
  std::vector<int64_t> sources;  // global ranks
  const char* own = nullptr;     // this rank's part
  OperationPointer operation;
};

class Engine {
 public:
  Engine(Segment segment, int64_t rank, int64_t world);

  // `after_reduction`: waits for the operation's reduction.
  void send(int64_t to, Lane lane, const void* data, size_t bytes,
            const OperationPointer& operation, bool after_reduction = false);
  void receive(int64_t from, Lane lane, void* data, size_t bytes,
               const OperationPointer& operation);
  void receive_reduced(Reduction reduction);

  // Moves what can be moved now.
  void progress();
  // The same until the operation is done or the time is over.
  bool wait_for(const Operation& operation, double seconds);

 private:
  struct Outgoing {
    const char* data;
    size_t bytes, done;
    OperationPointer operation;
    bool after_reduction;
  };
  struct Incoming {
    char* data;
    size_t bytes, done;
    OperationPointer operation;
    std::shared_ptr<Reduction> reduction;  // of which it is one source; else null
  };
  struct Link {
    Ring out, in;
    std::deque<Outgoing> outgoing;
    std::deque<Incoming> incoming;
  };

  Link& link(int64_t rank, Lane lane) { return links_[lane][static_cast<size_t>(rank)]; }
  bool move_once();
  bool move_out(int64_t peer, Link& link);
  bool move_in(int64_t peer, Link& link);
  bool reduce(Reduction& reduction);
  void ring_bell(int64_t rank);
  void sleep(uint32_t seen, double seconds);

  std::mutex mutex_;
  Segment segment_;
  int64_t rank_, world_;
  bool spins_;  // there is a core for every rank
  std::vector<Link> links_[kLanes];
};

}  // namespace keyseat_comm_shm
