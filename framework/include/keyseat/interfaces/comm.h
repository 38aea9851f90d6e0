// Kind `comm`: collectives between the ranks of a group.
//
// Contract (7-contracts section 6). One thread launches everything, in one global ticket order
// equal on the ranks of a group. Zero-length parts are legal and sent. Tensors are contiguous;
// results land in the given outputs. A Work is done when wait() returns; its tensors must live
// until then.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "keyseat/options.h"
#include "keyseat/plugin.h"

namespace keyseat {

inline constexpr int kCommAbi = 1;

enum class ReduceOp { kSum, kMax, kMin };

class KEYSEAT_API Work {
 public:
  virtual ~Work();
  virtual void wait() = 0;  // throws Error (R2) where a peer died or disagreed
};

// The ranks of one group. Sizes are in elements of dim 0.
class KEYSEAT_API CommGroup {
 public:
  virtual ~CommGroup();
  virtual int64_t size() const = 0;
  virtual int64_t rank() const = 0;                                              // within the group
  virtual std::unique_ptr<Work> all_reduce(at::Tensor tensor, ReduceOp op) = 0;  // in place
  virtual std::unique_ptr<Work> broadcast(at::Tensor tensor, int64_t root) = 0;
  // output rows: sum of `counts`; counts[i] = rows of rank i (all equal for the plain form).
  virtual std::unique_ptr<Work> all_gather(at::Tensor output, at::Tensor input,
                                           std::vector<int64_t> counts) = 0;
  virtual std::unique_ptr<Work> reduce_scatter(at::Tensor output, at::Tensor input,
                                               std::vector<int64_t> counts) = 0;  // SUM
  virtual std::unique_ptr<Work> all_to_all(at::Tensor output, at::Tensor input,
                                           std::vector<int64_t> output_counts,
                                           std::vector<int64_t> input_counts) = 0;
  virtual std::unique_ptr<Work> send(at::Tensor tensor, int64_t to) = 0;
  virtual std::unique_ptr<Work> receive(at::Tensor tensor, int64_t from) = 0;
  virtual void barrier() = 0;
};

// Where this process stands, from the launcher's environment.
struct Rendezvous {
  int64_t rank = 0, world = 1, local_rank = 0, local_world = 1;
  std::string host;
  int port = 0;
  double timeout_seconds = 300;
};

class KEYSEAT_API Comm {
 public:
  virtual ~Comm();
  // Problems (C4) where this communicator cannot serve the world. Opens no connection (optional).
  virtual Problems validate(const Rendezvous& rendezvous) const;
  virtual void connect(const Rendezvous& rendezvous) = 0;
  // The group of these global ranks; all of them call it in the same order. Owned by the
  // communicator.
  virtual CommGroup& group(const std::vector<int64_t>& ranks) = 0;
};

}  // namespace keyseat
