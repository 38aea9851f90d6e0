// Attention for CPU tensors: LibTorch's flash attention over views of the packed rows, one
// call per run of equally long segments. Grouped heads are given as a batch over the group with
// keys and values expanded by stride, so nothing is copied or repeated.
// Legend: T rows, n query heads, m key/value heads, g = n / m, d head dim, B segments of a run,
// L rows of each.
#include "nn/attention_flash.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

namespace keyseat::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Run {
  int64_t begin, segments, length;
  int64_t rows() const { return segments * length; }
};

// Consecutive segments of one length, together; with grouped heads each segment alone, because
// group and segment cannot share the one batch dimension.
std::vector<Run> runs_of(const std::vector<int64_t>& cu_seqlens, bool grouped) {
  std::vector<Run> runs;
  for (size_t i = 0; i + 1 < cu_seqlens.size(); ++i) {
    const int64_t begin = cu_seqlens[i], length = cu_seqlens[i + 1] - begin;
    if (length == 0) continue;
    if (!grouped && !runs.empty() && runs.back().length == length) {
      ++runs.back().segments;
    } else {
      runs.push_back({begin, 1, length});
    }
  }
  return runs;
}

// The rows of a run as the kernel wants them: [B, n, L, d], or [g, m, L, d] with grouped heads.
at::Tensor query_view(const at::Tensor& x_Tnd, const Run& run, int64_t group) {
  at::Tensor rows = x_Tnd.narrow(0, run.begin, run.rows());
  if (group > 1) return rows.unflatten(1, {rows.size(1) / group, group}).permute({2, 1, 0, 3});
  return rows.unflatten(0, {run.segments, run.length}).transpose(1, 2);
}

at::Tensor key_view(const at::Tensor& x_Tmd, const Run& run, int64_t group) {
  if (group == 1) return query_view(x_Tmd, run, 1);
  at::Tensor x_mLd = x_Tmd.narrow(0, run.begin, run.length).transpose(0, 1);
  return x_mLd.unsqueeze(0).expand({group, -1, -1, -1});
}

// Makes one packed tensor of the results of the runs; without a copy where there is one run.
class Packed {
 public:
  Packed(const at::Tensor& like, size_t runs, int64_t group)
      : like_(like), group_(group), single_(runs == 1 && group == 1) {
    if (!single_) packed_ = at::empty(like.sizes(), like.options());
  }
  void put(const Run& run, const at::Tensor& part) {
    if (single_) {
      packed_ = part.transpose(1, 2).reshape(like_.sizes());
    } else {
      query_view(packed_, run, group_).copy_(part);
    }
  }
  at::Tensor result() const { return packed_; }

 private:
  const at::Tensor& like_;
  int64_t group_;
  bool single_;
  at::Tensor packed_;
};

struct FlashAttentionFunction : torch::autograd::Function<FlashAttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q_in,
                            const at::Tensor& k_in, const at::Tensor& v_in,
                            const std::vector<int64_t>& cu_seqlens, bool causal, double scale) {
    const at::Tensor q = last_dim_packed(q_in), k = last_dim_packed(k_in),
                     v = last_dim_packed(v_in);
    const int64_t group = q.size(1) / k.size(1);
    const std::vector<Run> runs = runs_of(cu_seqlens, group > 1);
    Packed y(q, runs.size(), group);
    variable_list saved = {q, k, v, {}};
    for (const Run& run : runs) {
      auto [part, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
          query_view(q, run, group), key_view(k, run, group), key_view(v, run, group),
          /*dropout_p=*/0.0, causal, /*attn_mask=*/{}, scale);
      y.put(run, part);
      saved.push_back(logsumexp);
    }
    saved[3] = y.result();
    context->save_for_backward(saved);
    context->saved_data["cu_seqlens"] = cu_seqlens;
    context->saved_data["causal"] = causal;
    context->saved_data["scale"] = scale;
    return y.result();
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &y = saved[3];
    const at::Tensor dy = last_dim_packed(gradients[0]);
    const int64_t group = q.size(1) / k.size(1);
    const std::vector<Run> runs =
        runs_of(context->saved_data["cu_seqlens"].toIntVector(), group > 1);
    Packed dq(q, runs.size(), group), dk(k, runs.size(), 1), dv(v, runs.size(), 1);
    for (size_t i = 0; i < runs.size(); ++i) {
      auto [dq_part, dk_part, dv_part] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          query_view(dy, runs[i], group), query_view(q, runs[i], group),
          key_view(k, runs[i], group), key_view(v, runs[i], group), query_view(y, runs[i], group),
          saved[4 + i], /*dropout_p=*/0.0, context->saved_data["causal"].toBool(),
          /*attn_mask=*/{}, context->saved_data["scale"].toDouble());
      dq.put(runs[i], dq_part);
      // The gradient of an expanded key is the sum over its group.
      dk.put(runs[i], group > 1 ? dk_part.sum(0, /*keepdim=*/true) : dk_part);
      dv.put(runs[i], group > 1 ? dv_part.sum(0, /*keepdim=*/true) : dv_part);
    }
    return {dq.result(), dk.result(), dv.result(), {}, {}, {}};
  }
};

}  // namespace

at::Tensor flash_attention(const at::Tensor& q_Tnd, const at::Tensor& k_Tmd,
                           const at::Tensor& v_Tmd, const std::vector<int64_t>& cu_seqlens,
                           bool causal, double scale) {
  return FlashAttentionFunction::apply(q_Tnd, k_Tmd, v_Tmd, cu_seqlens, causal, scale);
}

}  // namespace keyseat::nn
