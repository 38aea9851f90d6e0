#include "comm/call_check.h"

#include <fmt/format.h>

#include <algorithm>

namespace keyseat::comm {

std::string CallCheck::Mismatch::text() const {
  return fmt::format("rank {}: {}\n  rank {}: {}", first.rank, first.text(), second.rank,
                     second.text());
}

std::optional<CallCheck::Mismatch> CallCheck::compare(Pending& pending, const CallRecord& record,
                                                      bool lower) {
  std::deque<CallRecord>& own = lower ? pending.of_lower : pending.of_higher;
  std::deque<CallRecord>& other = lower ? pending.of_higher : pending.of_lower;
  if (other.empty()) {
    own.push_back(record);
    return std::nullopt;
  }
  CallRecord peer = std::move(other.front());
  other.pop_front();
  std::string what = mismatch(peer, record);
  if (what.empty()) return std::nullopt;
  if (peer.rank < record.rank) return Mismatch{std::move(what), std::move(peer), record};
  return Mismatch{std::move(what), record, std::move(peer)};
}

std::optional<CallCheck::Mismatch> CallCheck::add(const CallRecord& record) {
  if (record.kind == CallKind::kSend || record.kind == CallKind::kReceive) {
    const bool sends = record.kind == CallKind::kSend;
    const std::pair<int64_t, int64_t> direction =
        sends ? std::pair(record.rank, record.detail) : std::pair(record.detail, record.rank);
    return compare(messages_[direction], record, sends);
  }
  for (const int64_t peer : record.group) {
    if (peer == record.rank) continue;
    const auto pair = std::minmax(peer, record.rank);
    auto found = compare(collectives_[{pair.first, pair.second}], record, record.rank < peer);
    if (found) return found;
  }
  return std::nullopt;
}

}  // namespace keyseat::comm
