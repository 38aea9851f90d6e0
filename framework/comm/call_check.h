// Compares the calls of all ranks: for every two ranks, the n-th call that both take part in has to
// be the same call. Pure bookkeeping; rank 0 feeds it with what the ranks report.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "comm/call_record.h"

namespace keyseat::comm {

class KEYSEAT_API CallCheck {
 public:
  struct Mismatch {
    std::string what;  // "kind", "sizes", ...
    CallRecord first, second;
    std::string text() const;  // both sides
  };
  // The next call of record.rank; each rank's calls come in their order.
  std::optional<Mismatch> add(const CallRecord& record);

 private:
  // Calls that one rank of a pair has made and the other has not: never both.
  struct Pending {
    std::deque<CallRecord> of_lower, of_higher;
  };
  std::optional<Mismatch> compare(Pending& pending, const CallRecord& record, bool lower);
  std::map<std::pair<int64_t, int64_t>, Pending> collectives_;  // by (lower, higher) rank
  std::map<std::pair<int64_t, int64_t>, Pending> messages_;     // by (sender, receiver)
};

}  // namespace keyseat::comm
