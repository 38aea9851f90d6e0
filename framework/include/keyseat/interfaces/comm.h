// Kind `comm`: collectives between the ranks of a group.
//
// Contract (7-contracts section 6). One thread launches everything, in one global ticket order
// equal on the ranks of a group. Zero-length parts are legal and sent. Tensors are contiguous, of
// any dtype where data only moves; reductions take fp32, fp64, bf16 (summed in fp32) and int64.
// Results land in the given outputs.
//
//   CommGroup& group = comm.group(mesh.group({Axis::kShard}), CommChannel::kParameters);
//   auto work = group.all_gather(output, input, counts);   // begins
//   ...                                                    // compute
//   work->wait();                                          // output is there
//
// What a strategy, dispatcher or unit gets is the core's Comm around the plugin's: it checks every
// call (R4), numbers it, counts its bytes by link, and ends a wait with R2 where a rank is lost.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "keyseat/options.h"
#include "keyseat/plugin.h"

namespace c10d {
class Store;
}

namespace keyseat {

inline constexpr int kCommAbi = 2;

enum class ReduceOp { kSum, kMax, kMin };

// Groups of different channels have connections of their own, so that a gather of parameters does
// not queue behind, or in front of, what the computation waits for.
enum class CommChannel { kCompute, kParameters };

// An operation that was begun. It is done when wait() returns; its tensors must live until then.
// On a device wait() does not stop the host: work enqueued on the current stream afterwards sees
// the result. Every Work is waited for, in any order.
class KEYSEAT_API Work {
 public:
  virtual ~Work();
  // Waits up to `seconds`, true once the operation is done. A plugin makes progress only inside
  // calls of its interface, or on threads of its own. Throws Error (R2) where a peer died or
  // disagreed.
  virtual bool wait_for(double seconds) = 0;
  void wait();
};

// The ranks of one group. Sizes are in elements of dim 0; roots and peers are ranks within the
// group, in the order in which its ranks were given. Every operation takes part on all ranks of the
// group, send and receive on the two.
class KEYSEAT_API CommGroup {
 public:
  virtual ~CommGroup();
  virtual int64_t size() const = 0;
  virtual int64_t rank() const = 0;  // within the group
  // In place. The result is bitwise equal on all ranks.
  virtual std::unique_ptr<Work> all_reduce(at::Tensor tensor, ReduceOp op) = 0;
  virtual std::unique_ptr<Work> broadcast(at::Tensor tensor, int64_t root) = 0;
  // output rows: sum of `counts`; counts[i] = rows of rank i (all equal for the plain form). The
  // input may be this rank's part of the output itself.
  virtual std::unique_ptr<Work> all_gather(at::Tensor output, at::Tensor input,
                                           std::vector<int64_t> counts) = 0;
  // SUM. input rows: sum of `counts`; output rows: counts[rank]. Added in the order of ranks.
  virtual std::unique_ptr<Work> reduce_scatter(at::Tensor output, at::Tensor input,
                                               std::vector<int64_t> counts) = 0;
  // output_counts[i]: rows that come from rank i; input_counts[i]: rows that go to rank i.
  virtual std::unique_ptr<Work> all_to_all(at::Tensor output, at::Tensor input,
                                           std::vector<int64_t> output_counts,
                                           std::vector<int64_t> input_counts) = 0;
  // Messages between two ranks arrive in the order of their sends. A send may be done only once the
  // peer receives, so post a step's sends and receives together, then wait. A device runs those of
  // a group one by one: ranks that send to each other at the same time use all_to_all, or a group
  // for each direction.
  virtual std::unique_ptr<Work> send(at::Tensor tensor, int64_t to) = 0;
  virtual std::unique_ptr<Work> receive(at::Tensor tensor, int64_t from) = 0;
  virtual std::unique_ptr<Work> begin_barrier() = 0;
  void barrier();  // begun and waited for
};

// Where this process stands, from the launcher's environment.
struct Rendezvous {
  int64_t rank = 0, world = 1, local_rank = 0, local_world = 1;
  int64_t hosts = 1;
  std::string host;  // of rank 0
  int port = 0;      // of the store
  double timeout_seconds = 300;
  at::Device device = at::kCPU;  // where the tensors of this rank live
  // The run's key-value store: every rank is connected to it. Null in a world of one rank. It
  // outlives the communicator.
  c10d::Store* store = nullptr;
};

class KEYSEAT_API Comm {
 public:
  virtual ~Comm();
  // Problems (C4) where this communicator cannot serve the world. Opens no connection, does not use
  // the store (optional).
  virtual Problems validate(const Rendezvous& rendezvous) const;
  virtual void connect(const Rendezvous& rendezvous) = 0;
  // The group of these global ranks, made on the first call; all of them call it in the same order.
  // Owned by the communicator.
  virtual CommGroup& group(const std::vector<int64_t>& ranks,
                           CommChannel channel = CommChannel::kCompute) = 0;
  // A peer is lost: gives up whatever is in flight, so that the process can end; later calls may
  // fail. From any thread (optional).
  virtual void abort();
};

}  // namespace keyseat
