// Bytes that a rank sends, from the routing or, where none is given, as an expectation.
#include "alltoall.h"
#include "keyseat/nn/exchange.h"

namespace keyseat_dispatcher_alltoall {

using keyseat::Axis;
using keyseat::DispatcherTraffic;
using keyseat::DispatcherWork;
using keyseat::Mesh;
using keyseat::nn::add_sent;

namespace {

// Rows that the rank at place `from` of the dispatch group sends to each expert rank.
std::vector<double> rows_to_ranks(const keyseat::DispatcherWork& work, int64_t from,
                                  int64_t ranks) {
  const int64_t local = work.facts.experts / ranks;
  if (work.capacity > 0) {
    return std::vector<double>(static_cast<size_t>(ranks),
                               static_cast<double>(work.capacity * local));
  }
  if (work.topk_index.empty()) {
    return std::vector<double>(
        static_cast<size_t>(ranks),
        static_cast<double>(work.tokens * work.facts.top_k) / static_cast<double>(ranks));
  }
  std::vector<double> rows(static_cast<size_t>(ranks), 0);
  const at::Tensor index_TK = work.topk_index[static_cast<size_t>(from)].contiguous();
  const int64_t* index = index_TK.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < index_TK.numel(); ++i) {
    if (index[i] >= 0) rows[static_cast<size_t>(index[i] / local)] += 1;
  }
  return rows;
}

double row_bytes(const DispatcherWork& work, int64_t element_bytes) {
  return static_cast<double>(work.facts.hidden * element_bytes);
}

// Between expert-parallel ranks: out go the rows of this rank's tokens, back those it received.
void add_exchange(const DispatcherWork& work, const Mesh& mesh, DispatcherTraffic& traffic) {
  const int64_t ranks = mesh.degree(Axis::kExpert), slices = mesh.degree(Axis::kExpertTensor);
  const int64_t own = mesh.coordinate(Axis::kExpert), slice = mesh.coordinate(Axis::kExpertTensor);
  const std::vector<int64_t> peers = mesh.group({Axis::kExpert});
  const double row = row_bytes(work, work.element_bytes);
  const auto rows = [&](int64_t from, int64_t to) {
    return rows_to_ranks(work, from * slices + slice, ranks)[static_cast<size_t>(to)];
  };
  for (int64_t peer = 0; peer < ranks; ++peer) {
    const int64_t to = peers[static_cast<size_t>(peer)];
    const double out = rows(own, peer), back = rows(peer, own);
    add_sent(traffic.plan, mesh, to, static_cast<double>(work.facts.experts / ranks * 8));
    add_sent(traffic.dispatch, mesh, to, out * (row + 4));
    add_sent(traffic.combine, mesh, to, back * row);
    add_sent(traffic.combine_backward, mesh, to, out * row);
    add_sent(traffic.dispatch_backward, mesh, to, back * (row + 4));
  }
}

// Between the ranks with slices of one expert: each gives the others a copy of what it received,
// and gets their partial sums, in fp32.
void add_slices(const DispatcherWork& work, const Mesh& mesh, DispatcherTraffic& traffic) {
  const int64_t ranks = mesh.degree(Axis::kExpert), slices = mesh.degree(Axis::kExpertTensor);
  const auto own = static_cast<size_t>(mesh.coordinate(Axis::kExpert));
  const std::vector<int64_t> holders = mesh.group({Axis::kExpertTensor});
  const double row = row_bytes(work, work.element_bytes);
  const double sum_row = row_bytes(work, std::max<int64_t>(work.element_bytes, 4));
  std::vector<double> received(static_cast<size_t>(slices), 0);  // by rank of the slice
  for (int64_t place = 0; place < ranks * slices; ++place) {
    received[static_cast<size_t>(place % slices)] += rows_to_ranks(work, place, ranks)[own];
  }
  const double mine = received[static_cast<size_t>(mesh.coordinate(Axis::kExpertTensor))];
  for (size_t slice = 0; slice < received.size(); ++slice) {
    const double theirs = received[slice];
    add_sent(traffic.plan, mesh, holders[slice], static_cast<double>(work.facts.experts * 8));
    add_sent(traffic.dispatch, mesh, holders[slice], mine * (row + 4));
    add_sent(traffic.combine, mesh, holders[slice], theirs * sum_row);
    add_sent(traffic.combine_backward, mesh, holders[slice], mine * row);
    add_sent(traffic.dispatch_backward, mesh, holders[slice], theirs * (sum_row + 4));
  }
}

}  // namespace

DispatcherTraffic AllToAll::traffic(const DispatcherWork& work, const Mesh& mesh) const {
  DispatcherTraffic traffic;
  add_exchange(work, mesh, traffic);
  add_slices(work, mesh, traffic);
  return traffic;
}

}  // namespace keyseat_dispatcher_alltoall
