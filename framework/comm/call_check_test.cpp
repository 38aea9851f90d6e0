#include "comm/call_check.h"

#include <doctest/doctest.h>

#include "comm/traffic.h"

namespace keyseat::comm {
namespace {

CallRecord call(CallKind kind, std::vector<int64_t> group, int64_t rank,
                std::vector<int64_t> counts = {4}) {
  CallRecord record;
  record.ticket = 1;
  record.kind = kind;
  record.group = std::move(group);
  record.rank = rank;
  record.dtype = "Float";
  record.row_bytes = 8;
  record.counts = std::move(counts);
  return record;
}

CallRecord exchange(std::vector<int64_t> group, int64_t rank, std::vector<int64_t> go,
                    std::vector<int64_t> come) {
  CallRecord record = call(CallKind::kAllToAll, std::move(group), rank, std::move(go));
  record.output_counts = std::move(come);
  return record;
}

CallRecord message(CallKind kind, int64_t rank, int64_t peer, int64_t rows) {
  CallRecord record = call(kind, {0, 1}, rank, {rows});
  record.detail = peer;
  return record;
}

TEST_CASE("call check: calls that fit, whatever comes first") {
  CallCheck check;
  for (const int64_t rank : {2, 0, 1}) {
    CHECK(!check.add(call(CallKind::kAllReduce, {0, 1, 2}, rank)));
    CHECK(!check.add(call(CallKind::kBarrier, {0, 1, 2}, rank, {})));
  }
  CHECK(!check.add(exchange({0, 1}, 0, {1, 5}, {1, 7})));
  CHECK(!check.add(exchange({0, 1}, 1, {7, 2}, {5, 2})));
  // Sends and receives of two ranks may be posted in any order; each direction has its own.
  CHECK(!check.add(message(CallKind::kSend, 0, 1, 3)));
  CHECK(!check.add(message(CallKind::kReceive, 0, 1, 4)));
  CHECK(!check.add(message(CallKind::kSend, 1, 0, 4)));
  CHECK(!check.add(message(CallKind::kReceive, 1, 0, 3)));
}

TEST_CASE("call check: kind, group, sizes, dtype, operation and order") {
  const auto differ = [](const CallRecord& a, const CallRecord& b) {
    CallCheck check;
    CHECK(!check.add(a));
    const auto found = check.add(b);
    return found ? found->what : "";
  };
  const CallRecord sum = call(CallKind::kAllReduce, {0, 1}, 0);
  CHECK(differ(sum, call(CallKind::kBroadcast, {0, 1}, 1)) == "kind");
  CHECK(differ(sum, call(CallKind::kAllReduce, {0, 1, 2}, 1)) == "group");
  CHECK(differ(sum, call(CallKind::kAllReduce, {0, 1}, 1, {5})) == "sizes");
  CallRecord other = call(CallKind::kAllReduce, {0, 1}, 1);
  other.dtype = "BFloat16";
  CHECK(differ(sum, other) == "dtype");
  other = call(CallKind::kAllReduce, {0, 1}, 1);
  other.detail = static_cast<int64_t>(ReduceOp::kMax);
  CHECK(differ(sum, other) == "operation");
  other = call(CallKind::kAllReduce, {0, 1}, 1);
  other.channel = CommChannel::kParameters;
  CHECK(differ(sum, other) == "group");
  CHECK(differ(exchange({0, 1}, 0, {1, 5}, {1, 7}), exchange({0, 1}, 1, {6, 2}, {5, 2})) ==
        "sizes");
  CHECK(differ(message(CallKind::kSend, 0, 1, 3), message(CallKind::kReceive, 1, 0, 2)) == "sizes");

  // Two groups with the same two ranks, called in another order.
  CallCheck check;
  CHECK(!check.add(call(CallKind::kAllReduce, {0, 1}, 0)));
  CHECK(!check.add(call(CallKind::kAllReduce, {0, 1, 2}, 0)));
  const auto found = check.add(call(CallKind::kAllReduce, {0, 1, 2}, 1));
  REQUIRE(found);
  CHECK(found->text().find("rank 0: #1 all_reduce (sum) of ranks [0, 1], rows") !=
        std::string::npos);
  CHECK(found->text().find("rank 1: #1 all_reduce (sum) of ranks [0, 1, 2], rows") !=
        std::string::npos);
}

TEST_CASE("call record: a line and back; a line of somebody else is nothing") {
  CallRecord record = exchange({3, 5}, 5, {1, 2}, {3, 2});
  record.unit = "decoder.layers.3 \"forward\"";
  const auto back = record_of_line(to_line(record));
  REQUIRE(back);
  CHECK(back->text() == record.text());
  CHECK(back->counts == record.counts);
  CHECK(back->output_counts == record.output_counts);
  CHECK(!record_of_line("GET / HTTP/1.1"));
  CHECK(!record_of_line("[1, 99, [], 0, 0, \"\", 0, [], [], 0, \"\"]"));
  CHECK(!record_of_line("[1, 4, [0, 1], 0, 0, \"Float\", 8, [1], [1], 0, \"\"]"));
}

TEST_CASE("traffic: bytes by link class") {
  // Ranks 0 and 1 are a node, 2 and 3 another; this is rank 1.
  const std::vector<int64_t> all{0, 1, 2, 3};
  Traffic traffic;
  const auto added = [&](const CallRecord& record) {
    traffic = {};
    add_call(traffic, record, /*ranks_per_node=*/2);
    return std::array<int64_t, 4>{traffic.sent_in_all().intra, traffic.sent_in_all().inter,
                                  traffic.received_in_all().intra, traffic.received_in_all().inter};
  };
  using Bytes = std::array<int64_t, 4>;
  CHECK(added(call(CallKind::kAllGather, all, 1, {1, 2, 3, 4})) == Bytes{16, 32, 8, 56});
  CHECK(added(call(CallKind::kReduceScatter, all, 1, {1, 2, 3, 4})) == Bytes{8, 56, 16, 32});
  CHECK(added(exchange(all, 1, {1, 9, 3, 4}, {5, 9, 7, 0})) == Bytes{8, 56, 40, 56});
  CHECK(added(call(CallKind::kAllReduce, all, 1, {4})) == Bytes{16, 32, 16, 32});
  CallRecord broadcast = call(CallKind::kBroadcast, all, 1, {2});
  broadcast.detail = 1;
  CHECK(added(broadcast) == Bytes{16, 32, 0, 0});
  broadcast.detail = 3;
  CHECK(added(broadcast) == Bytes{0, 0, 0, 16});
  CallRecord sent = call(CallKind::kSend, all, 1, {2});
  sent.detail = 2;
  CHECK(added(sent) == Bytes{0, 16, 0, 0});
  sent.kind = CallKind::kReceive;
  sent.detail = 0;
  CHECK(added(sent) == Bytes{0, 0, 16, 0});
  CHECK(traffic.calls[static_cast<size_t>(CallKind::kReceive)] == 1);
}

}  // namespace
}  // namespace keyseat::comm
