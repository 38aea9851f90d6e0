#include "tests/comm/cells.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

namespace keyseat::comm_test {

void Checks::expect(bool condition, const std::string& what) {
  ++done_;
  if (!condition) failures_.push_back(what);
}

at::Tensor values(int64_t rank, int64_t rows, int64_t width, at::ScalarType type, int64_t seed) {
  const at::Tensor count = at::arange(rows * width, at::kLong);
  return count.add(rank * 7 + seed).remainder(13).sub(4).to(type).view({rows, width});
}

std::vector<int64_t> uneven_counts(int64_t ranks, int64_t scale) {
  std::vector<int64_t> counts;
  for (int64_t rank = 0; rank < ranks; ++rank) counts.push_back(rank % 3 * scale);
  return counts;
}

void check_asynchronous(const CellGroup& cell, Checks& checks) {
  // Larger than any buffer in between, several at once, waited for in another order.
  constexpr int64_t kRows = 300000;
  const int64_t size = cell.size();
  const at::Tensor input = values(cell.own(), kRows, 4, at::kFloat);
  at::Tensor gathered = at::full({size * kRows, 4}, -1.0, at::kFloat);
  at::Tensor sum = input.clone();
  at::Tensor small = values(cell.own(), 3, 1, at::kFloat);
  std::vector<at::Tensor> sent, received;
  std::vector<std::unique_ptr<Work>> works;
  works.push_back(cell.group.all_gather(gathered, input,
                                        std::vector<int64_t>(static_cast<size_t>(size), kRows)));
  works.push_back(cell.group.all_reduce(sum, ReduceOp::kSum));
  for (int64_t peer = 0; peer < size; ++peer) {
    if (peer == cell.own()) continue;
    sent.push_back(values(cell.own(), kRows, 1, at::kFloat, peer));
    received.push_back(at::empty({kRows, 1}));
    works.push_back(cell.group.send(sent.back(), peer));
    works.push_back(cell.group.receive(received.back(), peer));
  }
  works.push_back(cell.group.all_reduce(small, ReduceOp::kMax));
  for (auto work = works.rbegin(); work != works.rend(); ++work) (*work)->wait();

  at::Tensor expected_sum = at::full({kRows, 4}, 0.0, at::kFloat);
  at::Tensor expected_small = values(0, 3, 1, at::kFloat);
  size_t message = 0;
  for (int64_t peer = 0; peer < size; ++peer) {
    const at::Tensor theirs = values(peer, kRows, 4, at::kFloat);
    checks.expect(gathered.narrow(0, peer * kRows, kRows).equal(theirs),
                  cell.name + ": asynchronous all_gather");
    expected_sum.add_(theirs);
    expected_small = expected_small.maximum(values(peer, 3, 1, at::kFloat));
    if (peer == cell.own()) continue;
    checks.expect(received[message++].equal(values(peer, kRows, 1, at::kFloat, cell.own())),
                  cell.name + ": asynchronous message");
  }
  checks.expect(sum.equal(expected_sum), cell.name + ": asynchronous all_reduce");
  checks.expect(small.equal(expected_small), cell.name + ": asynchronous maximum");
}

void check_traffic(comm::RecordedComm& comm, const CellGroup& cell, int64_t ranks_per_node,
                   Checks& checks) {
  // All to all: i + 1 rows of 8 bytes from everybody to rank i of the group.
  const int64_t size = cell.size();
  std::vector<int64_t> go, come(static_cast<size_t>(size), cell.own() + 1);
  for (int64_t peer = 0; peer < size; ++peer) go.push_back(peer + 1);
  const at::Tensor input = at::full({size * (size + 1) / 2, 2}, 1.0, at::kFloat);
  at::Tensor output = at::empty({size * (cell.own() + 1), 2});
  const auto kind = static_cast<size_t>(comm::CallKind::kAllToAll);
  const comm::Traffic before = comm.traffic();
  cell.group.all_to_all(output, input, come, go)->wait();
  const comm::Traffic after = comm.traffic();
  comm::LinkBytes sent, received;
  const int64_t own_node = cell.ranks[cell.own()] / ranks_per_node;
  for (int64_t peer = 0; peer < size; ++peer) {
    if (peer == cell.own()) continue;
    const bool inside = cell.ranks[peer] / ranks_per_node == own_node;
    (inside ? sent.intra : sent.inter) += 8 * (peer + 1);
    (inside ? received.intra : received.inter) += 8 * (cell.own() + 1);
  }
  const auto& s = after.sent[kind];
  const auto& r = after.received[kind];
  checks.expect(s.intra - before.sent[kind].intra == sent.intra &&
                    s.inter - before.sent[kind].inter == sent.inter,
                cell.name + ": bytes sent by link class");
  checks.expect(r.intra - before.received[kind].intra == received.intra &&
                    r.inter - before.received[kind].inter == received.inter,
                cell.name + ": bytes received by link class");
  checks.expect(after.calls[kind] == before.calls[kind] + 1, cell.name + ": calls");
}

void run_cells(comm::RecordedComm& comm, int64_t rank, int64_t world, int64_t ranks_per_node,
               Checks& checks) {
  std::vector<std::vector<int64_t>> groups;
  std::vector<int64_t> all(static_cast<size_t>(world));
  std::iota(all.begin(), all.end(), 0);
  groups.push_back(all);
  groups.emplace_back(all.rbegin(), all.rend());  // ranks in another order
  groups.push_back({rank});
  if (world == 4) {
    groups.push_back(rank < 2 ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{2, 3});
    groups.push_back(rank % 2 == 0 ? std::vector<int64_t>{0, 2} : std::vector<int64_t>{1, 3});
  }
  for (const auto& ranks : groups) {
    for (const CommChannel channel : {CommChannel::kCompute, CommChannel::kParameters}) {
      const CellGroup cell{fmt::format("ranks [{}], channel {}", fmt::join(ranks, ","),
                                       channel == CommChannel::kCompute ? "compute" : "parameters"),
                           comm.group(ranks, channel), ranks};
      checks.expect(&comm.group(ranks, channel) == &cell.group, cell.name + ": made once");
      check_moving(cell, checks);
      check_reducing(cell, checks);
      check_traffic(comm, cell, ranks_per_node, checks);
      if (channel == CommChannel::kCompute) check_asynchronous(cell, checks);
      cell.group.barrier();
    }
  }
}

}  // namespace keyseat::comm_test
