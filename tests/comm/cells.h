// Conformance of a communicator: what every one has to do, checked by the ranks themselves.
#pragma once

#include <string>
#include <vector>

#include "comm/recorded_comm.h"

namespace keyseat::comm_test {

// One group in which cells run.
struct CellGroup {
  std::string name;
  CommGroup& group;
  std::vector<int64_t> ranks;
  int64_t own() const { return group.rank(); }
  int64_t size() const { return group.size(); }
};

// Collects what is wrong; a failed check does not end the cell, so that the ranks stay in step.
class Checks {
 public:
  void expect(bool condition, const std::string& what);
  int64_t done() const { return done_; }
  const std::vector<std::string>& failures() const { return failures_; }

 private:
  int64_t done_ = 0;
  std::vector<std::string> failures_;
};

// Values that rank `rank` contributes: small integers, so that sums are exact in every dtype.
at::Tensor values(int64_t rank, int64_t rows, int64_t width, at::ScalarType type, int64_t seed = 0);

// Row counts by rank, some of them zero.
std::vector<int64_t> uneven_counts(int64_t ranks, int64_t scale);

void check_moving(const CellGroup& group, Checks& checks);    // all_gather, all_to_all, broadcast,
                                                              // messages
void check_reducing(const CellGroup& group, Checks& checks);  // all_reduce, reduce_scatter
void check_asynchronous(const CellGroup& group, Checks& checks);
void check_traffic(comm::RecordedComm& comm, const CellGroup& group, int64_t ranks_per_node,
                   Checks& checks);

// All cells over several groups of the world.
void run_cells(comm::RecordedComm& comm, int64_t rank, int64_t world, int64_t ranks_per_node,
               Checks& checks);

}  // namespace keyseat::comm_test
