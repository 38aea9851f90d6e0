// Legend: C query rows, S key rows, n query heads, m key/value heads, g = n / m, d head dim; of a
// piece: L queries, K keys; of a block: B queries, X = g B.
#include "nn/attention_pieces.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/zeros.h>

#include "keyseat/mutation.h"
#include "nn/attention_head.h"
#include "nn/naive.h"
#include "nn/simd.h"

namespace keyseat::nn {
namespace {

// A piece's rows of [C, n, d].
at::Tensor queries_of(const AttentionPiece& piece, const at::Tensor& x_Cnd) {
  return x_Cnd.narrow(0, piece.query, piece.queries);
}
at::Tensor keys_of(const AttentionPiece& piece, const at::Tensor& x_Smd) {
  return x_Smd.narrow(0, piece.key, piece.keys);
}
at::Tensor columns_of(const AttentionPiece& piece, const at::Tensor& x_nC) {
  return x_nC.narrow(1, piece.query, piece.queries);
}

void merge_sums(const AttentionPiece& piece, const at::Tensor& y_Lnd, const at::Tensor& log_sum_nL,
                AttentionSums& sums) {
  at::Tensor total_nL = columns_of(piece, sums.log_sum_nC);
  const at::Tensor merged_nL = at::logaddexp(total_nL, log_sum_nL);
  const auto share_Ln1 = [&](const at::Tensor& part_nL) {
    return part_nL.sub(merged_nL).exp().t().unsqueeze(2);
  };
  queries_of(piece, sums.y_Cnd)
      .mul_(share_Ln1(total_nL))
      .addcmul_(y_Lnd, share_Ln1(KEYSEAT_MUTATED("equal_partials") ? merged_nL : log_sum_nL));
  total_nL.copy_(merged_nL);
}

// Calls body(key head) for all of them; a thread has whole heads, so that sums of keys never meet.
template <typename Body>
void for_each_key_head(const at::Tensor& k_Smd, const Body& body) {
  at::parallel_for(0, k_Smd.size(1), 1, [&](int64_t begin, int64_t end) {
    // Worker threads do not inherit that gradients are off.
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (int64_t head = begin; head < end; ++head) body(head);
  });
}

at::Tensor fp32_head(const at::Tensor& x_Lnd, int64_t head) {
  return x_Lnd.select(1, head).to(at::kFloat);
}

void attend_by_head(const AttentionPiece& piece, const at::Tensor& q_Lnd, const at::Tensor& k_Kmd,
                    const at::Tensor& v_Kmd, double scale, const at::Tensor& y_Lnd,
                    const at::Tensor& log_sum_nL) {
  const int64_t group = q_Lnd.size(1) / k_Kmd.size(1);
  for_each_key_head(k_Kmd, [&](int64_t key_head) {
    HeadAttention attention{{},
                            fp32_head(k_Kmd, key_head),
                            fp32_head(v_Kmd, key_head),
                            piece.visible,
                            static_cast<float>(scale)};
    const at::Tensor scratch = head_scratch(q_Lnd.options(), piece.queries, piece.keys);
    for (int64_t head = key_head * group; head < (key_head + 1) * group; ++head) {
      attention.q_Ld = fp32_head(q_Lnd, head);
      forward_head(attention, y_Lnd.select(1, head),
                   log_sum_nL.mutable_data_ptr<float>() + head * piece.queries, scratch);
    }
  });
}

void attend_backward_by_head(const AttentionPiece& piece, const AttentionRows& rows,
                             const at::Tensor& k_Smd, const at::Tensor& v_Smd,
                             const AttentionGradients& out) {
  const int64_t group = rows.q_Cnd.size(1) / k_Smd.size(1);
  const at::Tensor q_Lnd = queries_of(piece, rows.q_Cnd), dy_Lnd = queries_of(piece, rows.dy_Cnd);
  const at::Tensor k_Kmd = keys_of(piece, k_Smd), v_Kmd = keys_of(piece, v_Smd);
  for_each_key_head(k_Kmd, [&](int64_t key_head) {
    HeadAttention attention{{},
                            fp32_head(k_Kmd, key_head),
                            fp32_head(v_Kmd, key_head),
                            piece.visible,
                            static_cast<float>(rows.scale)};
    const auto scratch = [&] { return head_scratch(q_Lnd.options(), piece.queries, piece.keys); };
    const std::array<at::Tensor, 2> scratches = {scratch(), scratch()};
    HeadGradients sums{.dq_Ld = {},
                       .dk_Sd = keys_of(piece, out.dk_Smd).select(1, key_head),
                       .dv_Sd = keys_of(piece, out.dv_Smd).select(1, key_head),
                       .add_to_queries = true,
                       .add_to_keys = true};
    for (int64_t head = key_head * group; head < (key_head + 1) * group; ++head) {
      attention.q_Ld = fp32_head(q_Lnd, head);
      sums.dq_Ld = queries_of(piece, out.dq_Cnd).select(1, head);
      backward_head(attention, fp32_head(dy_Lnd, head),
                    columns_of(piece, rows.log_sum_nC).select(0, head).const_data_ptr<float>(),
                    columns_of(piece, rows.delta_nC).select(0, head).const_data_ptr<float>(), sums,
                    scratches);
    }
  });
}

// LibTorch's ops, for other devices and fp64: all heads of a block of queries at once.

constexpr int64_t kComposedRows = 256;

// Heads that share keys stand together: [L, n, d] -> [m, g, L, d].
at::Tensor grouped(const at::Tensor& x_Lnd, int64_t key_heads) {
  return x_Lnd.to(naive::wide_type(x_Lnd)).unflatten(1, {key_heads, -1}).permute({1, 2, 0, 3});
}

// A block of queries and the keys that its last one sees.
struct ComposedBlock {
  ComposedBlock(const AttentionPiece& piece, int64_t first)
      : first(first),
        rows(std::min(kComposedRows, piece.queries - first)),
        keys(std::min(piece.keys, piece.visible - 1 + first + rows)),
        visible(piece.visible + first) {}
  int64_t first, rows, keys, visible;

  at::Tensor of(const at::Tensor& x_mgLd) const {  // [m, X, d]
    return x_mgLd.narrow(2, first, rows).flatten(1, 2);
  }
  at::Tensor seen(const at::Tensor& x_mKd) const { return x_mKd.narrow(1, 0, keys); }
  at::Tensor columns(const at::Tensor& x_nL, int64_t key_heads) const {  // [m, X, 1]
    return x_nL.narrow(1, first, rows).reshape({key_heads, -1, 1});
  }
  // scale q k^T, hidden keys at minus infinity.
  at::Tensor scores(const at::Tensor& q_mXd, const at::Tensor& k_mKd, double scale) const {
    at::Tensor scores_mXK = at::bmm(q_mXd, seen(k_mKd).transpose(1, 2)).mul_(scale);
    if (visible >= keys) return scores_mXK;
    const at::Tensor key_K = at::arange(keys, scores_mXK.options().dtype(at::kLong));
    const at::Tensor first_hidden_B1 =
        at::arange(visible, visible + rows, key_K.options()).unsqueeze(1);
    scores_mXK.unflatten(1, {-1, rows})
        .masked_fill_(key_K.ge(first_hidden_B1), -std::numeric_limits<double>::infinity());
    return scores_mXK;
  }
};

// [m, X, d] of a block -> [B, n, d].
at::Tensor rows_first(const at::Tensor& x_mXd, int64_t rows) {
  return x_mXd.unflatten(1, {-1, rows}).flatten(0, 1).transpose(0, 1);
}

void attend_composed(const AttentionPiece& piece, const at::Tensor& q_Lnd, const at::Tensor& k_Kmd,
                     const at::Tensor& v_Kmd, double scale, const at::Tensor& y_Lnd,
                     const at::Tensor& log_sum_nL) {
  const int64_t key_heads = k_Kmd.size(1);
  const at::Tensor q_mgLd = grouped(q_Lnd, key_heads);
  const at::Tensor k_mKd = grouped(k_Kmd, key_heads).squeeze(1),
                   v_mKd = grouped(v_Kmd, key_heads).squeeze(1);
  for (int64_t first = 0; first < piece.queries; first += kComposedRows) {
    const ComposedBlock block(piece, first);
    at::Tensor scores_mXK = block.scores(block.of(q_mgLd), k_mKd, scale);
    const at::Tensor log_sum_mX1 = at::logsumexp(scores_mXK, {-1}, /*keepdim=*/true);
    log_sum_nL.narrow(1, first, block.rows).copy_(log_sum_mX1.reshape({-1, block.rows}));
    const at::Tensor weight_mXK = scores_mXK.sub_(log_sum_mX1).exp_();
    y_Lnd.narrow(0, first, block.rows)
        .copy_(rows_first(at::bmm(weight_mXK, block.seen(v_mKd)), block.rows));
  }
}

void attend_backward_composed(const AttentionPiece& piece, const AttentionRows& rows,
                              const at::Tensor& k_Smd, const at::Tensor& v_Smd,
                              const AttentionGradients& out) {
  const int64_t key_heads = k_Smd.size(1);
  const at::Tensor q_mgLd = grouped(queries_of(piece, rows.q_Cnd), key_heads),
                   dy_mgLd = grouped(queries_of(piece, rows.dy_Cnd), key_heads);
  const at::Tensor k_mKd = grouped(keys_of(piece, k_Smd), key_heads).squeeze(1),
                   v_mKd = grouped(keys_of(piece, v_Smd), key_heads).squeeze(1);
  const at::Tensor log_sum_nL = columns_of(piece, rows.log_sum_nC),
                   delta_nL = columns_of(piece, rows.delta_nC);
  for (int64_t first = 0; first < piece.queries; first += kComposedRows) {
    const ComposedBlock block(piece, first);
    const at::Tensor q_mXd = block.of(q_mgLd), dy_mXd = block.of(dy_mgLd);
    const at::Tensor weight_mXK =
        block.scores(q_mXd, k_mKd, rows.scale).sub_(block.columns(log_sum_nL, key_heads)).exp_();
    const at::Tensor slope_mXK = at::bmm(dy_mXd, block.seen(v_mKd).transpose(1, 2))
                                     .sub_(block.columns(delta_nL, key_heads))
                                     .mul_(weight_mXK)
                                     .mul_(rows.scale);
    const auto add_to_keys = [&](const at::Tensor& sum_Smd, const at::Tensor& weight,
                                 const at::Tensor& x_mXd) {
      keys_of(piece, sum_Smd)
          .narrow(0, 0, block.keys)
          .add_(at::bmm(weight.transpose(1, 2), x_mXd).transpose(0, 1));
    };
    add_to_keys(out.dv_Smd, weight_mXK, dy_mXd);
    add_to_keys(out.dk_Smd, slope_mXK, q_mXd);
    queries_of(piece, out.dq_Cnd)
        .narrow(0, first, block.rows)
        .add_(rows_first(at::bmm(slope_mXK, block.seen(k_mKd)), block.rows));
  }
}

}  // namespace

std::vector<AttentionPiece> attention_pieces(const std::vector<RowRange>& queries,
                                             const std::vector<RowRange>& keys,
                                             const std::vector<int64_t>& cu_seqlens) {
  std::vector<AttentionPiece> pieces;
  int64_t query_offset = 0;
  for (const RowRange& own : queries) {
    int64_t key_offset = 0;
    for (const RowRange& other : keys) {
      for (size_t i = 0; i + 1 < cu_seqlens.size(); ++i) {
        const int64_t begin = KEYSEAT_MUTATED("segments_ignored") ? 0 : cu_seqlens[i];
        const int64_t first_key = std::max(other.begin, begin);
        const int64_t first = std::max({own.begin, cu_seqlens[i], first_key});
        const int64_t last = std::min(own.end, cu_seqlens[i + 1]);  // one behind
        const int64_t last_key = std::min(other.end, last);
        if (first >= last || first_key >= last_key) continue;
        pieces.push_back({.query = query_offset + first - own.begin,
                          .queries = last - first,
                          .key = key_offset + first_key - other.begin,
                          .keys = last_key - first_key,
                          .visible = first - first_key + 1});
      }
      key_offset += other.end - other.begin;
    }
    query_offset += own.end - own.begin;
  }
  return pieces;
}

AttentionSums::AttentionSums(const at::Tensor& q_Cnd)
    : y_Cnd(at::zeros(q_Cnd.sizes(), q_Cnd.options().dtype(naive::wide_type(q_Cnd)))),
      log_sum_nC(at::full({q_Cnd.size(1), q_Cnd.size(0)}, -std::numeric_limits<double>::infinity(),
                          y_Cnd.options())) {}

void attend(const AttentionPiece& piece, const at::Tensor& q_Cnd, const at::Tensor& k_Smd,
            const at::Tensor& v_Smd, double scale, AttentionSums& sums) {
  const at::Tensor q_Lnd = queries_of(piece, q_Cnd);
  const at::Tensor k_Kmd = keys_of(piece, k_Smd), v_Kmd = keys_of(piece, v_Smd);
  const at::Tensor y_Lnd = at::empty(q_Lnd.sizes(), sums.y_Cnd.options());
  const at::Tensor log_sum_nL = at::empty({q_Lnd.size(1), q_Lnd.size(0)}, y_Lnd.options());
  const auto run = simd_takes(q_Cnd) ? attend_by_head : attend_composed;
  run(piece, q_Lnd, k_Kmd, v_Kmd, scale, y_Lnd, log_sum_nL);
  merge_sums(piece, y_Lnd, log_sum_nL, sums);
}

at::Tensor row_deltas(const at::Tensor& y_Cnd, const at::Tensor& dy_Cnd) {
  const at::ScalarType type = naive::wide_type(y_Cnd);
  return y_Cnd.to(type).mul(dy_Cnd.to(type)).sum(-1).t().contiguous();
}

void attend_backward(const AttentionPiece& piece, const AttentionRows& rows,
                     const at::Tensor& k_Smd, const at::Tensor& v_Smd,
                     const AttentionGradients& out) {
  const auto run = simd_takes(rows.q_Cnd) ? attend_backward_by_head : attend_backward_composed;
  run(piece, rows, k_Smd, v_Smd, out);
}

}  // namespace keyseat::nn
