// One call of a collective on one rank, as the other ranks may know it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "keyseat/export.h"
#include "keyseat/interfaces/comm.h"

namespace keyseat::comm {

enum class CallKind {
  kAllReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kSend,
  kReceive,
  kBarrier
};
inline constexpr int kCallKinds = 8;

const char* call_name(CallKind kind);  // "all_reduce", ...
bool is_message(CallKind kind);        // send or receive

struct CallRecord {
  int64_t ticket = 0;  // counts the calls of this rank, over all groups
  CallKind kind = CallKind::kBarrier;
  std::vector<int64_t> group;  // global ranks
  CommChannel channel = CommChannel::kCompute;
  int64_t rank = 0;                    // global, of the caller
  std::string dtype;                   // empty for a barrier
  int64_t row_bytes = 0;               // of one element of dim 0
  std::vector<int64_t> counts;         // rows by rank of the group; one number where all are alike
  std::vector<int64_t> output_counts;  // all_to_all only: rows that come; `counts` go
  int64_t detail = 0;  // all_reduce: the ReduceOp; broadcast: root; send and receive: the peer, as
                       // a global rank
  std::string unit;    // that the rank was in, for messages

  // "#57 all_to_all of ranks [0, 1], rows of 512 bytes (bf16): 3, 4 out, 2, 5 in; unit
  // decoder.layers.3"
  KEYSEAT_API std::string text() const;
};

// One line of text each way; nothing where the line is no record.
std::string to_line(const CallRecord& record);
std::optional<CallRecord> record_of_line(const std::string& line);

// What two ranks of a group say about the same call fits; the first thing that does not, as a word:
// "kind", "group", "dtype", "sizes", "operation". Empty: it fits.
std::string mismatch(const CallRecord& a, const CallRecord& b);

}  // namespace keyseat::comm
