// Collectives that add up: exact for integers, the same bits on all ranks, bf16 summed in fp32.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "tests/comm/cells.h"

namespace keyseat::comm_test {
namespace {

std::string sum_label(const CellGroup& cell, const char* what, at::ScalarType type, int64_t rows) {
  return fmt::format("{}: {} of {}, {} rows", cell.name, what, c10::toString(type), rows);
}

at::Tensor reduced(int64_t ranks, int64_t rows, at::ScalarType type, ReduceOp op) {
  at::Tensor result = values(0, rows, 3, type);
  for (int64_t rank = 1; rank < ranks; ++rank) {
    const at::Tensor next = values(rank, rows, 3, type);
    if (op == ReduceOp::kSum) result = result.add(next);
    if (op == ReduceOp::kMax) result = result.maximum(next);
    if (op == ReduceOp::kMin) result = result.minimum(next);
  }
  return result;
}

void all_reduce(const CellGroup& cell, at::ScalarType type, int64_t rows, Checks& checks) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
    at::Tensor tensor = values(cell.own(), rows, 3, type);
    cell.group.all_reduce(tensor, op)->wait();
    checks.expect(tensor.equal(reduced(cell.size(), rows, type, op)),
                  sum_label(cell, "all_reduce", type, rows));
  }
}

void reduce_scatter(const CellGroup& cell, at::ScalarType type, const std::vector<int64_t>& counts,
                    Checks& checks) {
  const int64_t rows = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const int64_t first = std::accumulate(counts.begin(), counts.begin() + cell.own(), int64_t{0});
  const int64_t own = counts[cell.own()];
  at::Tensor output = at::full({own, 3}, 99, type);
  cell.group.reduce_scatter(output, values(cell.own(), rows, 3, type), counts)->wait();
  const at::Tensor expected = reduced(cell.size(), rows, type, ReduceOp::kSum);
  checks.expect(output.equal(expected.narrow(0, first, own)),
                sum_label(cell, "reduce_scatter", type, rows));
}

// Fractions whose sum depends on the order: all ranks have to come to the same bits.
void same_bits(const CellGroup& cell, int64_t rows, Checks& checks) {
  at::Tensor tensor = values(cell.own(), rows, 3, at::kFloat).mul(0.1f).add(1.0f / 3);
  cell.group.all_reduce(tensor, ReduceOp::kSum)->wait();
  at::Tensor all = at::zeros({rows * cell.size(), 3});
  cell.group.all_gather(all, tensor, std::vector<int64_t>(static_cast<size_t>(cell.size()), rows))
      ->wait();
  for (int64_t peer = 0; peer < cell.size(); ++peer) {
    checks.expect(all.narrow(0, peer * rows, rows).equal(tensor),
                  sum_label(cell, "all_reduce to the same bits", at::kFloat, rows));
  }
}

// 256 + 1 + 1 + ...: lost one by one in bf16, kept where the sum is taken in fp32.
void bf16_in_fp32(const CellGroup& cell, Checks& checks) {
  if (cell.size() < 3) return;
  const float own = cell.own() == 0 ? 256.0f : 1.0f;
  at::Tensor tensor = at::full({8192}, own, at::kBFloat16);  // takes the way of large tensors
  at::Tensor few = at::full({64}, own, at::kBFloat16);
  at::Tensor output = at::empty({16}, at::kBFloat16);
  cell.group.all_reduce(tensor, ReduceOp::kSum)->wait();
  cell.group.all_reduce(few, ReduceOp::kSum)->wait();
  const auto ranks = static_cast<size_t>(cell.size());
  cell.group
      .reduce_scatter(output, at::full({16 * cell.size()}, own, at::kBFloat16),
                      std::vector<int64_t>(ranks, 16))
      ->wait();
  const at::Tensor exact =
      at::full({1}, 256.0 + static_cast<double>(cell.size() - 1), at::kFloat).to(at::kBFloat16);
  for (const at::Tensor& result : {tensor, few, output}) {
    checks.expect(result.eq(exact).all().item<bool>(), cell.name + ": bf16 summed in fp32");
  }
}

}  // namespace

void check_reducing(const CellGroup& cell, Checks& checks) {
  const auto ranks = static_cast<size_t>(cell.size());
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble, at::kLong}) {
    for (const int64_t rows : {0, 1, 5, 4099}) {
      all_reduce(cell, type, rows, checks);
      reduce_scatter(cell, type, std::vector<int64_t>(ranks, rows), checks);
      reduce_scatter(cell, type, uneven_counts(cell.size(), rows), checks);
    }
  }
  all_reduce(cell, at::kFloat, 400001, checks);
  reduce_scatter(cell, at::kFloat, uneven_counts(cell.size(), 200001), checks);
  same_bits(cell, 7, checks);
  same_bits(cell, 50001, checks);
  bf16_in_fp32(cell, checks);
}

}  // namespace keyseat::comm_test
