// Ops of keyseat/nn/tensor_parallel.h over tensor and context ranks against one process: into and
// out of split linears, key heads, and all of them in a decoder. Legend: T rows of the packed row,
// C of a context rank, H hidden, I intermediate, O out, V vocabulary, n query heads, m key/value
// heads, d head dim.
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include "keyseat/nn/attention.h"
#include "keyseat/nn/cross_entropy.h"
#include "keyseat/nn/linear.h"
#include "keyseat/nn/tensor_parallel.h"
#include "tests/equivalence/tensor_ops.h"
#include "tests/mutation.h"

namespace keyseat::test::tensor_ops {
namespace {

constexpr int64_t kHidden = 6;

}  // namespace

TEST_CASE("tensor ops: into and out of split linears, forward and backward") {
  for (const TensorGrid& grid : tensor_grids()) {
    for (const auto& cu_seqlens : grid_rows()) {
      for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
        const auto values = [&](at::IntArrayRef shape, uint64_t seed) {
          return leaf_of(normal_values(shape, seed).to(dtype));
        };
        const at::Tensor x_TH = values({cu_seqlens.back(), kHidden}, 1);
        const at::Tensor up_IH = values({12, kHidden}, 2), down_HI = values({kHidden, 12}, 3);
        const at::Tensor dy_TH = normal_values(x_TH.sizes(), 4).to(dtype);
        const auto block = [](const at::Tensor& x, const at::Tensor& up, const at::Tensor& down) {
          return at::linear(at::linear(x, up).square(), down);
        };
        const at::Tensor y_TH = block(x_TH, up_IH, down_HI);
        const auto expected = gradients_of(y_TH, dy_TH, {x_TH, up_IH, down_HI});
        const RankOp op = [&](GridRank& rank) -> std::vector<Compared> {
          const auto own = [&](const at::Tensor& x) {
            return x.detach().index_select(0, rank.own_rows());
          };
          const auto cut = [&](const at::Tensor& x, int64_t dim) {
            return piece_of(x.detach(), grid.tensor, rank.tensor_rank(), dim);
          };
          const at::Tensor x = leaf_of(own(x_TH)), up = leaf_of(cut(up_IH, 0)),
                           down = leaf_of(cut(down_HI, 1));
          const at::Tensor y = nn::leave_split(
              block(nn::enter_split(x, Layout::kRows, *rank), up, down), Layout::kRows, *rank);
          const auto found = gradients_of(y, own(dy_TH), {x, up, down});
          const auto summed = [&](const at::Tensor& part) {
            return rank.sum_over({Axis::kContext}, part);
          };
          return {{"y", y, own(y_TH)},
                  {"dx", found[0], own(expected[0])},
                  {"dup", summed(found[1]), cut(expected[1], 0)},
                  {"ddown", summed(found[2]), cut(expected[2], 1)}};
        };
        check_on_ranks(grid, cu_seqlens, Kernels::kFast, op, dtype == at::kDouble ? 1e-12 : 1e-5);
      }
    }
  }
}

TEST_CASE("tensor ops: images are whole on every tensor rank, also beside slices of rows") {
  const at::Tensor x_PH = normal_values({7, 4}, 1), weight_HH = normal_values({4, 4}, 2);
  const at::Tensor dy_PH = normal_values({7, 4}, 3);
  const RankOp op = [&](GridRank& rank) -> std::vector<Compared> {
    const at::Tensor part = piece_of(weight_HH, 2, rank.tensor_rank(), 1);
    const at::Tensor x = leaf_of(x_PH);
    const at::Tensor columns =
        piece_of(nn::enter_split(x, Layout::kImages, *rank), 2, rank.tensor_rank(), 1);
    const at::Tensor y = nn::leave_split(at::linear(columns, part), Layout::kImages, *rank);
    return {{"y", y, at::linear(x_PH, weight_HH)},
            {"dx", gradients_of(y, dy_PH, {x})[0], dy_PH.matmul(weight_HH)}};
  };
  check_on_ranks({.tensor = 2, .slices = true}, {0, 8}, Kernels::kFast, op);
}

TEST_CASE("tensor ops: bf16 parts are added in fp32 and rounded once") {
  // 1 + 1/256 + 1/256: each addition alone would round to 1 in bf16.
  for (const bool slices : {false, true}) {
    const RankOp op = [&](GridRank& rank) -> std::vector<Compared> {
      const double part = rank.tensor_rank() == 0 ? 1.0 : 1.0 / 256;
      const at::Tensor parts = at::full({6, 2}, part, at::kBFloat16);
      const at::Tensor sum = nn::leave_split(parts, Layout::kRows, *rank);
      return {{"sum", sum, at::full({slices ? 2 : 6, 2}, 1.0 + 2.0 / 256)}};
    };
    check_on_ranks({.tensor = 3, .slices = slices}, {0, 6}, Kernels::kFast, op, 1e-9);
  }
}

TEST_CASE("tensor ops: the key heads that a rank's query heads use") {
  struct Heads {
    int64_t query, key, tensor;
    std::vector<std::vector<int64_t>> expected;  // by tensor rank
  };
  const std::vector<Heads> cases = {
      {8, 4, 2, {{0, 1}, {2, 3}}},     {8, 4, 4, {{0}, {1}, {2}, {3}}},
      {8, 2, 4, {{0}, {0}, {1}, {1}}}, {4, 1, 4, {{0}, {0}, {0}, {0}}},
      {6, 3, 3, {{0}, {1}, {2}}},      {4, 4, 1, {{0, 1, 2, 3}}}};
  for (const Heads& heads : cases) {
    const at::Tensor x_Cmd = normal_values({5, heads.key, 2}, 1);
    const RankOp op = [&](GridRank& rank) -> std::vector<Compared> {
      const auto& own = heads.expected[static_cast<size_t>(rank.tensor_rank())];
      const at::Tensor index = at::tensor(own, at::kLong), x = leaf_of(x_Cmd);
      const at::Tensor y = nn::own_key_heads(x, heads.query, *rank);
      const at::Tensor used = at::zeros({5, heads.key, 2}).index_fill(1, index, 1);
      return {{"heads", y, x_Cmd.index_select(1, index)},
              {"gradient", gradients_of(y, at::full(y.sizes(), 1.0), {x})[0], used}};
    };
    check_on_ranks({.tensor = heads.tensor}, {0, 8}, Kernels::kFast, op);
  }
  for (const auto& [query, key, tensor] :
       std::vector<std::array<int64_t, 3>>{{6, 3, 2}, {12, 2, 3}, {6, 2, 4}, {5, 2, 5}}) {
    CAPTURE(query);
    const RankOp op = [&](GridRank& rank) -> std::vector<Compared> {
      nn::own_key_heads(normal_values({2, key, 2}, 1), query, *rank);
      return {};
    };
    CHECK_THROWS_WITH_AS(op_difference({.tensor = tensor}, {0, 16}, Kernels::kFast, op),
                         doctest::Contains("use whole key heads"), Error);
  }
}

TEST_CASE("tensor ops: whether a parameter is cut is seen from its shape") {
  std::vector<ParamSpec> specs(3);
  specs[0].name = "cut";
  specs[0].shape = {8, 4};
  specs[0].split = {.dim = 0, .units = 8};
  specs[1].name = "whole";
  specs[1].shape = {8, 4};
  specs[1].split = {.dim = 0, .units = 8, .otherwise = TensorSplit::Otherwise::kReplicate};
  specs[2].name = "experts";  // cut over expert ranks, which is another matter
  specs[2].shape = {8, 4};
  const Params params(
      &specs, {ParamHandle::of(normal_values({4, 4}, 1)), ParamHandle::of(normal_values({8, 4}, 2)),
               ParamHandle::of(normal_values({2, 4}, 3))});
  CHECK(nn::is_split(params, "cut"));
  CHECK_FALSE(nn::is_split(params, "whole"));
  CHECK_FALSE(nn::is_split(params, "experts"));
  CHECK_THROWS_AS(nn::is_split(params, "absent"), Error);
}

TEST_CASE("tensor ops: what does not fit is R4, on all ranks alike") {
  const TensorGrid grid{.tensor = 2, .slices = true};
  const auto refuse = [&](const char* text, const std::function<void(GridRank&)>& call) {
    const RankOp op = [&](GridRank& rank) -> std::vector<Compared> {
      call(rank);
      return {};
    };
    CHECK_THROWS_WITH_AS(op_difference(grid, {0, 8}, Kernels::kFast, op), doctest::Contains(text),
                         Error);
  };
  const ParamHandle table = ParamHandle::of(normal_values({5, 4}, 1));
  const at::Tensor ids = at::tensor({0, 9, 3, 3, 1, 0, 2, 2}, at::kLong);
  refuse("has a table [5, 4] of a vocabulary of 12",
         [&](GridRank& rank) { nn::split_embedding(ids, table, 12, *rank); });
  refuse("token ids from 1 to 10 index an embedding of 10 rows",
         [&](GridRank& rank) { nn::split_embedding(ids.add(1), table, 10, *rank); });
  refuse("labels 8 of type Long up to 10", [&](GridRank& rank) {
    nn::split_cross_entropy(normal_values({4, 4}, 2), table, 10, ids.add(1), *rank);
  });
  refuse("7 rows of a context rank are to be cut into 2 slices", [&](GridRank& rank) {
    nn::leave_split(normal_values({7, 4}, 2), Layout::kRows, *rank);
  });
}

namespace {

// A decoder in small, all parameters in one process: embedding, attention with fewer key heads than
// tensor ranks, head. Every parameter's gradient, summed as a strategy does.
struct SmallDecoder {
  static constexpr int64_t kHeads = 4, kKeyHeads = 2, kHead = 3, kVocabulary = 11;
  std::vector<int64_t> cu_seqlens = {0, 1, 20, 41, 48};
  at::Tensor ids_T = ids_of(48, kVocabulary), labels_T = labels_of(48, kVocabulary);
  at::Tensor table_VH = normal_values({kVocabulary, kHidden}, 1);
  at::Tensor query_OH = normal_values({kHeads * kHead, kHidden}, 2);
  at::Tensor key_OH = normal_values({kKeyHeads * kHead, kHidden}, 3),
             value_OH = normal_values({kKeyHeads * kHead, kHidden}, 4);
  at::Tensor output_HO = normal_values({kHidden, kHeads* kHead}, 5);
  at::Tensor head_VH = normal_values({kVocabulary, kHidden}, 6);

  static at::Tensor heads(const at::Tensor& x, const at::Tensor& weight) {
    return at::linear(x, weight).unflatten(1, {weight.size(0) / kHead, kHead});
  }
};

OpDifference decoder_difference(const TensorGrid& grid) {
  const SmallDecoder decoder;
  const std::vector<at::Tensor> whole = {leaf_of(decoder.table_VH),  leaf_of(decoder.query_OH),
                                         leaf_of(decoder.key_OH),    leaf_of(decoder.value_OH),
                                         leaf_of(decoder.output_HO), leaf_of(decoder.head_VH)};
  const at::Tensor x_TH = nn::embedding(decoder.ids_T, ParamHandle::of(whole[0]));
  const at::Tensor mixed_Tnd = nn::varlen_attention(
      SmallDecoder::heads(x_TH, whole[1]), SmallDecoder::heads(x_TH, whole[2]),
      SmallDecoder::heads(x_TH, whole[3]), decoder.cu_seqlens, true, 0.5, Kernels::kNaive);
  const at::Tensor y_TH = x_TH.add(at::linear(mixed_Tnd.flatten(1), whole[4]));
  const at::Tensor loss_1 =
      nn::linear_cross_entropy(y_TH, ParamHandle::of(whole[5]), decoder.labels_T, Kernels::kNaive);
  const at::Tensor seed = at::full({1}, 1.0);
  const auto expected = gradients_of(loss_1, seed, whole);
  const RankOp op = [&](GridRank& rank) -> std::vector<Compared> {
    const auto cut = [&](const at::Tensor& x, int64_t dim) {
      return piece_of(x, grid.tensor, rank.tensor_rank(), dim);
    };
    // Key and value projections stay whole where there are fewer key heads than ranks.
    const bool whole_keys = grid.tensor > SmallDecoder::kKeyHeads;
    const auto key_weight = [&](const at::Tensor& x) { return whole_keys ? x : cut(x, 0); };
    const std::vector<at::Tensor> own = {
        leaf_of(cut(decoder.table_VH, 0)),   leaf_of(cut(decoder.query_OH, 0)),
        leaf_of(key_weight(decoder.key_OH)), leaf_of(key_weight(decoder.value_OH)),
        leaf_of(cut(decoder.output_HO, 1)),  leaf_of(cut(decoder.head_VH, 0))};
    const auto in_rows = [&](const at::Tensor& x) {
      return x.index_select(0, rank.context_rows());
    };
    const at::Tensor x = nn::split_embedding(in_rows(decoder.ids_T), ParamHandle::of(own[0]),
                                             SmallDecoder::kVocabulary, *rank);
    const at::Tensor entered = nn::enter_split(x, Layout::kRows, *rank);
    const auto keys = [&](const at::Tensor& weight) {
      const at::Tensor heads = SmallDecoder::heads(entered, weight);
      return whole_keys ? nn::own_key_heads(heads, SmallDecoder::kHeads, *rank) : heads;
    };
    const at::Tensor mixed = nn::row_attention(SmallDecoder::heads(entered, own[1]), keys(own[2]),
                                               keys(own[3]), 0.5, *rank);
    const at::Tensor y =
        x.add(nn::leave_split(at::linear(mixed.flatten(1), own[4]), Layout::kRows, *rank));
    const at::Tensor share = nn::split_cross_entropy(
        y, ParamHandle::of(own[5]), SmallDecoder::kVocabulary, in_rows(decoder.labels_T), *rank);
    const auto found = gradients_of(share, seed, own);
    const auto compared = [&](const char* name, size_t i, int64_t dim) -> Compared {
      const bool shared = whole_keys && (i == 2 || i == 3);
      const std::vector<Axis> axes =
          shared ? std::vector<Axis>{Axis::kTensor, Axis::kContext} : std::vector{Axis::kContext};
      return {name, rank.sum_over(axes, found[i]), shared ? expected[i] : cut(expected[i], dim)};
    };
    return {
        {"loss", rank.sum_over({Axis::kTensor, Axis::kContext}, share.detach()), loss_1.detach()},
        compared("table", 0, 0),
        compared("query", 1, 0),
        compared("key", 2, 0),
        compared("value", 3, 0),
        compared("output", 4, 1),
        compared("head", 5, 0)};
  };
  return op_difference(grid, decoder.cu_seqlens, Kernels::kFast, op);
}

}  // namespace

TEST_CASE("tensor ops: all of them in a decoder, and mutations that show") {
  const TensorGrid grids[] = {{.tensor = 2, .context = 2, .slices = true},
                              {.tensor = 2, .context = 2, .slices = true, .ring = true},
                              {.tensor = 4, .context = 2, .ring = true},
                              {.tensor = 4, .slices = true}};
  for (const TensorGrid& grid : grids) {
    const OpDifference difference = decoder_difference(grid);
    INFO(grid.text(), ": ", difference.what);
    CHECK(difference.value < 1e-5);
  }
  const std::vector<std::pair<const char*, TensorGrid>> mutations = {
      {"own_columns_only", grids[0]}, {"own_columns_only", grids[2]},
      {"own_keys_only", grids[0]},    {"sums_of_the_neighbour", grids[1]},
      {"equal_partials", grids[1]},   {"segments_ignored", grids[0]},
      {"segments_ignored", grids[1]}, {"loss_of_all_rows", grids[3]}};
  for (const auto& [name, grid] : mutations) {
    INFO(name, " on ", grid.text());
    const Mutation mutation(name);
    CHECK(decoder_difference(grid).value > 1e-3);
  }
}

}  // namespace keyseat::test::tensor_ops
