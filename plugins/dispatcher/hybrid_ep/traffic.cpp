// Bytes that a rank sends, from the routing or, where none is given, as an expectation.
#include <cmath>

#include "hybrid_ep.h"
#include "keyseat/nn/exchange.h"
#include "topology.h"

namespace keyseat_dispatcher_hybrid_ep {

using keyseat::DispatcherWork;
using keyseat::nn::add_sent;

namespace {

// Probability that a token which chooses `top_k` of `experts` at random needs one of `some` of
// them: 1 - C(experts - some, k) / C(experts, k).
double share_that_needs(int64_t some, int64_t experts, int64_t top_k) {
  double none = 1;
  for (int64_t i = 0; i < top_k; ++i) {
    none *= static_cast<double>(std::max<int64_t>(experts - some - i, 0)) /
            static_cast<double>(experts - i);
  }
  return 1 - none;
}

// Tokens of the rank at `place` that need one of the experts first .. first + count - 1.
double tokens_that_need(const DispatcherWork& work, int64_t place, int64_t first, int64_t count) {
  if (work.topk_index.empty()) {
    return static_cast<double>(work.tokens) *
           share_that_needs(count, work.facts.experts, work.facts.top_k);
  }
  const at::Tensor index_TK = work.topk_index[static_cast<size_t>(place)].contiguous();
  const int64_t* index = index_TK.const_data_ptr<int64_t>();
  int64_t tokens = 0;
  for (int64_t token = 0; token < index_TK.size(0); ++token, index += index_TK.size(1)) {
    tokens += std::any_of(index, index + index_TK.size(1),
                          [&](int64_t e) { return e >= first && e < first + count; });
  }
  return static_cast<double>(tokens);
}

int64_t padded_tokens(const DispatcherWork& work) {
  int64_t padded = work.tokens;
  for (const at::Tensor& index_TK : work.topk_index) padded = std::max(padded, index_TK.size(0));
  return padded;
}

struct Rows {
  double out = 0, back = 0;  // rows sent, and rows received that are sent back
};

void add_rows(keyseat::DispatcherTraffic& traffic, const keyseat::Mesh& mesh, int64_t to,
              const Rows& rows, double row_bytes, double weight_bytes) {
  add_sent(traffic.dispatch, mesh, to, rows.out * (row_bytes + weight_bytes));
  add_sent(traffic.combine, mesh, to, rows.back * row_bytes);
  add_sent(traffic.combine_backward, mesh, to, rows.out * row_bytes);
  add_sent(traffic.dispatch_backward, mesh, to, rows.back * (row_bytes + weight_bytes));
}

}  // namespace

keyseat::DispatcherTraffic HybridEp::traffic(const DispatcherWork& work,
                                             const keyseat::Mesh& mesh) const {
  const Topology topology = Topology::of(mesh);
  const int64_t experts = work.facts.experts, of_node = experts / topology.nodes;
  const int64_t local = experts / topology.expert_ranks(), padded = padded_tokens(work);
  const auto row = static_cast<double>(work.facts.hidden * work.element_bytes);
  const auto first_of = [&](int64_t node, int64_t place) {
    return node * of_node + topology.expert_rank_of(place) * local;
  };
  keyseat::DispatcherTraffic traffic;
  for (const int64_t to : topology.ranks)
    add_sent(traffic.plan, mesh, to, topology.size() > 1 ? 8 : 0);
  for (int64_t node = 0; node < topology.nodes; ++node) {
    const int64_t peer = node * topology.per_node + topology.local;
    Rows rows{tokens_that_need(work, topology.place(), node * of_node, of_node),
              tokens_that_need(work, peer, topology.node * of_node, of_node)};
    if (bounded_) rows = {static_cast<double>(padded), static_cast<double>(padded)};
    const int64_t to = topology.ranks[static_cast<size_t>(peer)];
    add_sent(traffic.plan, mesh, to, static_cast<double>(padded * experts));
    add_rows(traffic, mesh, to, rows, row, static_cast<double>(of_node) * 4);
  }
  for (int64_t place = 0; place < topology.per_node; ++place) {
    Rows rows;
    for (int64_t node = 0; node < topology.nodes; ++node) {
      // Tokens of all nodes arrive in this node at the place of their rank.
      const int64_t through_me = node * topology.per_node + topology.local;
      const int64_t through_peer = node * topology.per_node + place;
      rows.out += tokens_that_need(work, through_me, first_of(topology.node, place), local);
      rows.back +=
          tokens_that_need(work, through_peer, first_of(topology.node, topology.local), local);
    }
    if (bounded_) {
      rows.out = rows.back = static_cast<double>(topology.nodes * padded);
    }
    const int64_t to =
        topology.ranks[static_cast<size_t>(topology.node * topology.per_node + place)];
    add_sent(traffic.plan, mesh, to, static_cast<double>(topology.nodes * padded * local));
    add_rows(traffic, mesh, to, rows, row, static_cast<double>(local) * 4);
  }
  return traffic;
}

}  // namespace keyseat_dispatcher_hybrid_ep
