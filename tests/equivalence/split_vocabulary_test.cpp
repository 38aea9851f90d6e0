// Embedding, loss and logits of a vocabulary that is cut over tensor ranks, against one process.
// Legend: T rows of the packed row, C of a context rank, H hidden, V vocabulary, R rows of which
// logits are wanted.
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tensor.h>
#include <doctest/doctest.h>

#include "keyseat/nn/cross_entropy.h"
#include "keyseat/nn/linear.h"
#include "keyseat/nn/tensor_parallel.h"
#include "tests/equivalence/tensor_ops.h"

namespace keyseat::test::split_vocabulary {

namespace {

constexpr int64_t kHidden = 6;

// A parameter cut over tensor, its gradient in a sink or not.
struct CutParameter {
  CutParameter(const at::Tensor& whole, const TensorGrid& grid, const GridRank& rank, bool has_sink)
      : value(leaf_of(piece_of(whole.detach(), grid.tensor, rank.tensor_rank()))) {
    const auto type = whole.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    if (has_sink) sink = at::full(value.sizes(), 0.5, type);
    handle = ParamHandle::of(value, sink);
  }
  // What a call of autograd, which gave `returned`, added up.
  at::Tensor gradient(const at::Tensor& returned) const {
    return sink.defined() && !returned.defined() ? sink.sub(0.5) : returned;
  }
  at::Tensor value, sink;
  ParamHandle handle;
};

// Vocabularies that tensor ranks divide, do not divide, and of which some have nothing.
const std::vector<int64_t> kVocabularies = {12, 10, 5};

}  // namespace

TEST_CASE("tensor ops: an embedding whose vocabulary is cut, into a sink and without") {
  for (const TensorGrid& grid : tensor_grids()) {
    for (const auto& cu_seqlens : grid_rows()) {
      for (const int64_t vocabulary : kVocabularies) {
        for (const bool has_sink : {false, true}) {
          const at::Tensor ids_T = ids_of(cu_seqlens.back(), vocabulary);
          const at::Tensor table_VH = leaf_of(normal_values({vocabulary, kHidden}, 1));
          const at::Tensor dy_TH = normal_values({cu_seqlens.back(), kHidden}, 2);
          const at::Tensor y_TH = nn::embedding(ids_T, ParamHandle::of(table_VH));
          const at::Tensor expected = gradients_of(y_TH, dy_TH, {table_VH})[0];
          const RankOp op = [&](GridRank& rank) -> std::vector<Compared> {
            const CutParameter table(table_VH, grid, rank, has_sink);
            const at::Tensor y = nn::split_embedding(ids_T.index_select(0, rank.context_rows()),
                                                     table.handle, vocabulary, *rank);
            const at::Tensor rows = rank.own_rows();
            const at::Tensor found =
                table.gradient(gradients_of(y, dy_TH.index_select(0, rows), {table.value})[0]);
            return {{"y", y, y_TH.detach().index_select(0, rows)},
                    {"dtable", rank.sum_over({Axis::kContext}, found),
                     piece_of(expected, grid.tensor, rank.tensor_rank())}};
          };
          CAPTURE(vocabulary);
          check_on_ranks(grid, cu_seqlens, Kernels::kFast, op);
        }
      }
    }
  }
}

namespace {

struct LossCase {
  std::vector<int64_t> cu_seqlens = {0, 1, 20, 41, 48};
  int64_t vocabulary = 10;
  at::ScalarType dtype = at::kFloat;
  Kernels kernels = Kernels::kFast;
  bool has_sink = true;
  bool supervised = true;  // else every row is ignored
  double tolerance = 1e-5;
};

OpDifference loss_difference(const TensorGrid& grid, const LossCase& test) {
  constexpr double kSeed = -0.7;  // the gradient of the loss
  const int64_t rows = test.cu_seqlens.back();
  const at::Tensor labels_T =
      test.supervised ? labels_of(rows, test.vocabulary) : at::full({rows}, -100, at::kLong);
  const at::Tensor x_TH = normal_values({rows, kHidden}, 1).to(test.dtype);
  const at::Tensor weight_VH = normal_values({test.vocabulary, kHidden}, 2).to(test.dtype);
  const std::vector<at::Tensor> whole = {leaf_of(x_TH.to(at::kDouble)),
                                         leaf_of(weight_VH.to(at::kDouble))};
  at::Tensor per_token_T;
  const at::Tensor loss_1 = nn::linear_cross_entropy(whole[0], ParamHandle::of(whole[1]), labels_T,
                                                     Kernels::kNaive, &per_token_T);
  const auto seed = [&](const at::Tensor& like) { return at::full({1}, kSeed, like.options()); };
  const auto expected = gradients_of(loss_1, seed(loss_1), whole);
  const RankOp op = [&](GridRank& rank) -> std::vector<Compared> {
    const at::Tensor own_rows = rank.own_rows();
    const auto own = [&](const at::Tensor& x) { return x.detach().index_select(0, own_rows); };
    const at::Tensor x = leaf_of(own(x_TH));
    const CutParameter weight(weight_VH, grid, rank, test.has_sink);
    at::Tensor per_token;
    const at::Tensor share =
        nn::split_cross_entropy(x, weight.handle, test.vocabulary,
                                labels_T.index_select(0, rank.context_rows()), *rank, &per_token);
    const auto found = gradients_of(share, seed(share), {x, weight.value});
    return {
        {"loss", rank.sum_over({Axis::kTensor, Axis::kContext}, share.detach()), loss_1.detach()},
        {"losses of rows", per_token, own(per_token_T)},
        {"dx", found[0], own(expected[0])},
        {"dweight", rank.sum_over({Axis::kContext}, weight.gradient(found[1])),
         piece_of(expected[1], grid.tensor, rank.tensor_rank())}};
  };
  return op_difference(grid, test.cu_seqlens, test.kernels, op);
}

void check_loss(const TensorGrid& grid, const LossCase& test) {
  const OpDifference difference = loss_difference(grid, test);
  CAPTURE(test.vocabulary);
  CAPTURE(test.has_sink);
  INFO(grid.text(), ": ", difference.what);
  CHECK(difference.value < test.tolerance);
}

}  // namespace

TEST_CASE("tensor ops: cross-entropy of a head whose vocabulary is cut") {
  for (const TensorGrid& grid : tensor_grids()) {
    for (const int64_t vocabulary : kVocabularies) {
      for (const Kernels kernels : {Kernels::kFast, Kernels::kNaive}) {
        const bool naive = kernels == Kernels::kNaive;
        check_loss(grid, {.vocabulary = vocabulary, .kernels = kernels, .has_sink = !naive});
        check_loss(grid, {.vocabulary = vocabulary,
                          .dtype = at::kDouble,
                          .kernels = kernels,
                          .has_sink = false,
                          .tolerance = 1e-12});
      }
      check_loss(grid, {.vocabulary = vocabulary, .has_sink = false});
    }
    check_loss(grid, {.cu_seqlens = {0}});
    check_loss(grid, {.supervised = false});
    check_loss(grid, {.dtype = at::kBFloat16, .tolerance = 1e-2});
  }
  // Several chunks of rows, a vocabulary that ends inside a vector, blocks of a bf16 weight.
  check_loss({.tensor = 2, .slices = true}, {.cu_seqlens = {0, 1600}, .vocabulary = 37});
  check_loss({.tensor = 2}, {.vocabulary = 9001, .dtype = at::kBFloat16, .tolerance = 1e-2});
}

TEST_CASE("tensor ops: logits of rows anywhere, equal on all ranks") {
  for (const TensorGrid& grid : tensor_grids()) {
    for (const int64_t vocabulary : kVocabularies) {
      for (const std::vector<int64_t>& rows : {std::vector<int64_t>{}, {0, 47, 20, 20, 31}}) {
        const at::Tensor rows_R = at::tensor(rows, at::kLong);
        const at::Tensor x_TH = normal_values({48, kHidden}, 1);
        const at::Tensor weight_VH = normal_values({vocabulary, kHidden}, 2);
        const RankOp op = [&](GridRank& rank) -> std::vector<Compared> {
          const CutParameter weight(weight_VH, grid, rank, false);
          const at::Tensor logits_RV =
              nn::split_logits(leaf_of(x_TH.index_select(0, rank.own_rows())), weight.handle,
                               vocabulary, rows_R, *rank);
          CHECK_FALSE(logits_RV.requires_grad());
          CHECK((logits_RV.scalar_type() == at::kFloat));
          return {{"logits", logits_RV, at::linear(x_TH.index_select(0, rows_R), weight_VH)}};
        };
        CAPTURE(vocabulary);
        check_on_ranks(grid, {0, 48}, Kernels::kFast, op);
      }
    }
  }
}

}  // namespace keyseat::test::split_vocabulary
