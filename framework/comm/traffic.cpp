#include "comm/traffic.h"

namespace keyseat::comm {
namespace {

LinkBytes sum(const std::array<LinkBytes, kCallKinds>& kinds) {
  LinkBytes all;
  for (const LinkBytes& bytes : kinds) all += bytes;
  return all;
}

// Adds bytes on the link between this rank and a peer; nothing for itself.
class Links {
 public:
  Links(int64_t rank, int64_t ranks_per_node) : rank_(rank), ranks_per_node_(ranks_per_node) {}
  void add(LinkBytes& bytes, int64_t peer, int64_t more) const {
    if (peer == rank_) return;
    const bool same_node = peer / ranks_per_node_ == rank_ / ranks_per_node_;
    (same_node ? bytes.intra : bytes.inter) += more;
  }

 private:
  int64_t rank_, ranks_per_node_;
};

}  // namespace

LinkBytes Traffic::sent_in_all() const { return sum(sent); }
LinkBytes Traffic::received_in_all() const { return sum(received); }

void add_call(Traffic& traffic, const CallRecord& record, int64_t ranks_per_node) {
  const auto kind = static_cast<size_t>(record.kind);
  ++traffic.calls[kind];
  const Links links(record.rank, ranks_per_node);
  LinkBytes& sent = traffic.sent[kind];
  LinkBytes& received = traffic.received[kind];
  const auto members = static_cast<int64_t>(record.group.size());
  int64_t own = 0;
  while (own < members && record.group[own] != record.rank) ++own;
  const auto rows = [&](int64_t place) { return record.counts[place] * record.row_bytes; };
  for (int64_t place = 0; place < members; ++place) {
    const int64_t peer = record.group[place];
    switch (record.kind) {
      case CallKind::kAllGather:
        links.add(sent, peer, rows(own));
        links.add(received, peer, rows(place));
        break;
      case CallKind::kReduceScatter:
        links.add(sent, peer, rows(place));
        links.add(received, peer, rows(own));
        break;
      case CallKind::kAllToAll:
        links.add(sent, peer, rows(place));
        links.add(received, peer, record.output_counts[place] * record.row_bytes);
        break;
      case CallKind::kAllReduce:  // a share of every rank, there and back
        links.add(sent, peer, 2 * rows(0) / members);
        links.add(received, peer, 2 * rows(0) / members);
        break;
      case CallKind::kBroadcast:
        if (own == record.detail) links.add(sent, peer, rows(0));
        if (own != record.detail && place == record.detail) links.add(received, peer, rows(0));
        break;
      case CallKind::kSend:
        if (peer == record.detail) links.add(sent, peer, rows(0));
        break;
      case CallKind::kReceive:
        if (peer == record.detail) links.add(received, peer, rows(0));
        break;
      case CallKind::kBarrier:
        break;
    }
  }
}

}  // namespace keyseat::comm
