#include "tests/equivalence/tensor_ops.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <mutex>

namespace keyseat::test {

Mesh TensorGrid::mesh(int64_t rank) const {
  MeshDegrees degrees;
  degrees.tensor = tensor;
  degrees.context = context;
  degrees.sequence_parallel = slices;
  degrees.context_ring = ring;
  Problems problems;
  Mesh mesh = Mesh::build(degrees, world(), rank, world(), problems);
  REQUIRE(problems.empty());
  return mesh;
}

std::string TensorGrid::text() const {
  return fmt::format("tensor {}{}, context {}{}", tensor, slices ? " with slices" : "", context,
                     ring ? " in a ring" : "");
}

GridRank::GridRank(const TensorGrid& grid, int64_t rank, Comm& comm,
                   std::vector<int64_t> cu_seqlens, Kernels kernels)
    : grid_(grid), mesh_(grid.mesh(rank)), comm_(comm), context_([&] {
        row_.cu_seqlens = std::move(cu_seqlens);
        if (grid.world() > 1) row_.share.row_tokens = row_.cu_seqlens.back();
        StepContext::State state;
        state.unit = "test.unit";
        state.plugin = "block/test";
        state.row = &row_;
        state.kernels = kernels;
        state.mesh = &mesh_;
        state.comm = &comm_;
        return state;
      }()) {}

at::Tensor GridRank::context_rows() const {
  const int64_t chunks = 2 * grid_.context, rows = row_.cu_seqlens.back() / chunks;
  const int64_t first = mesh_.coordinate(Axis::kContext), second = chunks - 1 - first;
  return at::cat({at::arange(first * rows, (first + 1) * rows, at::kLong),
                  at::arange(second * rows, (second + 1) * rows, at::kLong)});
}

at::Tensor GridRank::own_rows() const {
  const at::Tensor rows_C = context_rows();
  return grid_.slices ? rows_C.tensor_split(grid_.tensor)[static_cast<size_t>(tensor_rank())]
                      : rows_C;
}

at::Tensor GridRank::sum_over(const std::vector<Axis>& axes, const at::Tensor& part) {
  at::Tensor sum = part.clone(at::MemoryFormat::Contiguous);
  comm_.group(mesh_.group(axes)).all_reduce(sum, ReduceOp::kSum)->wait();
  return sum;
}

double relative_difference(const at::Tensor& actual, const at::Tensor& expected) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (!actual.defined() || actual.sizes() != expected.sizes()) return kInfinite;
  if (expected.numel() == 0) return 0;
  const at::Tensor a = actual.to(at::kDouble), e = expected.to(at::kDouble);
  const double size = e.norm().item<double>(), difference = a.sub(e).norm().item<double>();
  const double relative = size == 0 ? difference : difference / size;
  return std::isfinite(relative) ? relative : kInfinite;
}

OpDifference op_difference(const TensorGrid& grid, const std::vector<int64_t>& cu_seqlens,
                           Kernels kernels, const RankOp& op) {
  OpDifference worst;
  std::mutex mutex;
  ThreadWorld({.world = grid.world()}).run([&](int64_t rank, ThreadComm& comm) {
    GridRank call(grid, rank, comm, cu_seqlens, kernels);
    for (const Compared& compared : op(call)) {
      const double value = relative_difference(compared.actual, compared.expected);
      const std::lock_guard<std::mutex> lock(mutex);
      if (value > worst.value || worst.what.empty())
        worst = {value, fmt::format("{} of rank {}: {}", compared.what, rank, value)};
    }
  });
  return worst;
}

void check_on_ranks(const TensorGrid& grid, const std::vector<int64_t>& cu_seqlens, Kernels kernels,
                    const RankOp& op, double tolerance) {
  const OpDifference difference = op_difference(grid, cu_seqlens, kernels, op);
  CAPTURE(cu_seqlens);
  INFO(grid.text(), ": ", difference.what);
  CHECK(difference.value < tolerance);
}

const std::vector<TensorGrid>& tensor_grids() {
  static const std::vector<TensorGrid> grids = {{.tensor = 1},
                                                {.tensor = 2},
                                                {.tensor = 2, .slices = true},
                                                {.tensor = 3, .slices = true},
                                                {.tensor = 4},
                                                {.tensor = 4, .slices = true},
                                                {.tensor = 1, .context = 2},
                                                {.tensor = 2, .context = 2},
                                                {.tensor = 2, .context = 4, .slices = true},
                                                {.tensor = 3, .context = 2, .slices = true}};
  return grids;
}

const std::vector<std::vector<int64_t>>& grid_rows() {
  static const std::vector<std::vector<int64_t>> rows = {{0}, {0, 1, 20, 41, 48}};
  return rows;
}

at::Tensor leaf_of(const at::Tensor& x) { return x.clone().requires_grad_(); }

at::Tensor piece_of(const at::Tensor& x, int64_t ranks, int64_t rank, int64_t dim) {
  const int64_t most = (x.size(dim) + ranks - 1) / ranks;
  const int64_t begin = std::min(x.size(dim), rank * most);
  return x.narrow(dim, begin, std::min(x.size(dim), begin + most) - begin).contiguous();
}

at::Tensor ids_of(int64_t rows, int64_t vocabulary) {
  return at::arange(rows, at::kLong).mul(7).remainder(vocabulary);
}

at::Tensor labels_of(int64_t rows, int64_t vocabulary) {
  const at::Tensor row_T = at::arange(rows, at::kLong);
  return row_T.mul(5).remainder(vocabulary).masked_fill(row_T.remainder(3).eq(1), -100);
}

at::Tensor normal_values(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::kFloat);
}

std::vector<at::Tensor> gradients_of(const at::Tensor& output, const at::Tensor& dy,
                                     const std::vector<at::Tensor>& inputs) {
  return torch::autograd::grad({output}, inputs, {dy}, false, false, /*allow_unused=*/true);
}

}  // namespace keyseat::test
