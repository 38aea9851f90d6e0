// Test support: an op of keyseat/nn/tensor_parallel.h on the ranks of a (context, tensor) group,
// against one process.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "keyseat/context.h"
#include "tests/ranks/thread_comm.h"

namespace keyseat::test {

struct TensorGrid {
  int64_t tensor = 1, context = 1;
  bool slices = false;  // sequence parallel
  bool ring = false;
  int64_t world() const { return tensor * context; }
  Mesh mesh(int64_t rank) const;
  std::string text() const;
};

// One rank with its part of a packed row.
class GridRank {
 public:
  GridRank(const TensorGrid& grid, int64_t rank, Comm& comm, std::vector<int64_t> cu_seqlens,
           Kernels kernels);
  GridRank(const GridRank&) = delete;
  StepContext& operator*() { return context_; }
  int64_t tensor_rank() const { return mesh_.coordinate(Axis::kTensor); }
  // Indices in the packed row, as row_share.h and Layout::kRows say in words.
  at::Tensor context_rows() const;
  at::Tensor own_rows() const;
  at::Tensor sum_over(const std::vector<Axis>& axes, const at::Tensor& part);

 private:
  TensorGrid grid_;
  Mesh mesh_;
  Comm& comm_;
  RowFacts row_;
  StepContext context_;
};

// What a rank found, and what it should have.
struct Compared {
  std::string what;
  at::Tensor actual, expected;
};
using RankOp = std::function<std::vector<Compared>(GridRank&)>;

// The greatest relative L2 difference on any rank; infinite where shapes differ or values are no
// numbers.
struct OpDifference {
  double value = 0;
  std::string what;
};
OpDifference op_difference(const TensorGrid& grid, const std::vector<int64_t>& cu_seqlens,
                           Kernels kernels, const RankOp& op);
double relative_difference(const at::Tensor& actual, const at::Tensor& expected);

void check_on_ranks(const TensorGrid& grid, const std::vector<int64_t>& cu_seqlens, Kernels kernels,
                    const RankOp& op, double tolerance = 1e-5);

// Degrees of tensor 1 to 4, with and without slices, and context beside them; segments of rows that
// divide by all of them: no row, and 48.
const std::vector<TensorGrid>& tensor_grids();
const std::vector<std::vector<int64_t>>& grid_rows();

// A copy that wants a gradient.
at::Tensor leaf_of(const at::Tensor& x);
// The part of dimension `dim` that tensor rank `rank` of `ranks` has; the last ones may have less.
at::Tensor piece_of(const at::Tensor& x, int64_t ranks, int64_t rank, int64_t dim = 0);

// Token ids of a row, all of the vocabulary; labels, every third row ignored.
at::Tensor ids_of(int64_t rows, int64_t vocabulary);
at::Tensor labels_of(int64_t rows, int64_t vocabulary);

// Standard normal fp32 values that depend on the seed only.
at::Tensor normal_values(at::IntArrayRef shape, uint64_t seed);

// Gradients of `output` for the gradient dy; undefined where autograd yields none.
std::vector<at::Tensor> gradients_of(const at::Tensor& output, const at::Tensor& dy,
                                     const std::vector<at::Tensor>& inputs);

}  // namespace keyseat::test
