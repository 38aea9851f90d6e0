#include "comm/call_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace keyseat::comm {
namespace {

constexpr const char* kNames[kCallKinds] = {"all_reduce",     "broadcast",  "all_gather",
                                            "reduce_scatter", "all_to_all", "send",
                                            "receive",        "barrier"};
constexpr const char* kOps[] = {"sum", "max", "min"};

std::string detail_text(const CallRecord& record) {
  switch (record.kind) {
    case CallKind::kAllReduce:
      return fmt::format(" ({})", kOps[record.detail]);
    case CallKind::kBroadcast:
      return fmt::format(" (root {})", record.detail);
    case CallKind::kSend:
      return fmt::format(" to {}", record.detail);
    case CallKind::kReceive:
      return fmt::format(" from {}", record.detail);
    default:
      return "";
  }
}

// Rows between a and b are what both say.
bool exchange_fits(const CallRecord& a, const CallRecord& b) {
  const auto place = [](const CallRecord& record, int64_t rank) {
    const auto found = std::find(record.group.begin(), record.group.end(), rank);
    return static_cast<size_t>(found - record.group.begin());
  };
  const size_t of_a = place(a, a.rank), of_b = place(a, b.rank);
  return a.counts[of_b] == b.output_counts[of_a] && b.counts[of_a] == a.output_counts[of_b];
}

}  // namespace

const char* call_name(CallKind kind) { return kNames[static_cast<int>(kind)]; }
bool is_message(CallKind kind) { return kind == CallKind::kSend || kind == CallKind::kReceive; }

std::string CallRecord::text() const {
  std::string what = fmt::format("#{} {}{} of ranks [{}]", ticket, call_name(kind),
                                 detail_text(*this), fmt::join(group, ", "));
  if (channel == CommChannel::kParameters) what += " (parameters)";
  if (!dtype.empty()) {
    what += fmt::format(", rows of {} bytes ({}): {}", row_bytes, dtype, fmt::join(counts, ", "));
    if (kind == CallKind::kAllToAll)
      what += fmt::format(" out, {} in", fmt::join(output_counts, ", "));
  }
  if (!unit.empty()) what += ", in " + unit;
  return what;
}

std::string to_line(const CallRecord& record) {
  const nlohmann::json fields = {record.ticket,        static_cast<int>(record.kind),
                                 record.group,         static_cast<int>(record.channel),
                                 record.rank,          record.dtype,
                                 record.row_bytes,     record.counts,
                                 record.output_counts, record.detail,
                                 record.unit};
  return fields.dump();
}

std::optional<CallRecord> record_of_line(const std::string& line) {
  try {
    const nlohmann::json fields = nlohmann::json::parse(line);
    CallRecord record;
    record.ticket = fields.at(0);
    const int kind = fields.at(1);
    if (kind < 0 || kind >= kCallKinds) return std::nullopt;
    record.kind = static_cast<CallKind>(kind);
    record.group = fields.at(2).get<std::vector<int64_t>>();
    record.channel = fields.at(3) == 0 ? CommChannel::kCompute : CommChannel::kParameters;
    record.rank = fields.at(4);
    record.dtype = fields.at(5);
    record.row_bytes = fields.at(6);
    record.counts = fields.at(7).get<std::vector<int64_t>>();
    record.output_counts = fields.at(8).get<std::vector<int64_t>>();
    record.detail = fields.at(9);
    record.unit = fields.at(10);
    const bool exchange = record.kind == CallKind::kAllToAll;
    const size_t size = record.group.size();
    if (exchange && (record.counts.size() != size || record.output_counts.size() != size)) {
      return std::nullopt;
    }
    return record;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::string mismatch(const CallRecord& a, const CallRecord& b) {
  if (a.group != b.group || a.channel != b.channel) return "group";
  const bool messages = is_message(a.kind) && is_message(b.kind);
  if (!messages && a.kind != b.kind) return "kind";
  if (a.dtype != b.dtype) return "dtype";
  if (a.kind == CallKind::kAllToAll) {
    return a.row_bytes == b.row_bytes && exchange_fits(a, b) ? "" : "sizes";
  }
  if (a.row_bytes != b.row_bytes || a.counts != b.counts) return "sizes";
  return messages || a.detail == b.detail ? "" : "operation";
}

}  // namespace keyseat::comm
