// Legend: L query rows, S keys, d head dim; of a block: B rows, K keys that its last row sees.
#include "nn/attention_head.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include "nn/kernels/attention_softmax.h"

namespace keyseat::nn {
namespace {

struct HeadBlock {
  HeadBlock(const HeadAttention& head, int64_t first)
      : first(first),
        rows(std::min(kBlockRows, head.q_Ld.size(0) - first)),
        columns(std::min(head.k_Sd.size(0), head.visible - 1 + first + rows)),
        first_visible(head.visible + first) {}
  int64_t first, rows, columns, first_visible;
  at::Tensor of(const at::Tensor& x_Ld) const { return x_Ld.narrow(0, first, rows); }
  at::Tensor seen(const at::Tensor& x_Sd) const { return x_Sd.narrow(0, 0, columns); }
  at::Tensor scores(const at::Tensor& scratch) const {
    return scratch.narrow(0, 0, rows * columns).view({rows, columns});
  }
};

float* floats(const at::Tensor& x) { return x.mutable_data_ptr<float>(); }

// out = a b, or out += a b.
void add_product(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool add) {
  out.addmm_(a, b, /*beta=*/add ? 1 : 0, /*alpha=*/1);
}

}  // namespace

at::Tensor head_scratch(const at::TensorOptions& options, int64_t queries, int64_t keys) {
  return at::empty({std::min(kBlockRows, queries) * keys}, options.dtype(at::kFloat));
}

void forward_head(const HeadAttention& head, const at::Tensor& y_Ld, float* log_sum_L,
                  const at::Tensor& scratch) {
  for (int64_t first = 0; first < head.q_Ld.size(0); first += kBlockRows) {
    const HeadBlock block(head, first);
    at::Tensor scores_BK = block.scores(scratch);
    at::mm_out(scores_BK, block.of(head.q_Ld), block.seen(head.k_Sd).t());
    kernels::run(kernels::AttentionSoftmax{.scores = floats(scores_BK),
                                           .rows = block.rows,
                                           .columns = block.columns,
                                           .first_visible = block.first_visible,
                                           .scale = head.scale,
                                           .log_sum = log_sum_L + first});
    at::Tensor y_Bd = block.of(y_Ld);
    at::mm_out(y_Bd, scores_BK, block.seen(head.v_Sd));
  }
}

void backward_head(const HeadAttention& head, const at::Tensor& dy_Ld, const float* log_sum_L,
                   const float* delta_L, const HeadGradients& out,
                   const std::array<at::Tensor, 2>& scratch) {
  const int64_t length = head.q_Ld.size(0);
  // From the last block, which sees the most keys: it writes the gradients, the others add.
  for (int64_t first = (length - 1) / kBlockRows * kBlockRows; first >= 0; first -= kBlockRows) {
    const HeadBlock block(head, first);
    const bool add = out.add_to_keys || first + block.rows < length;
    at::Tensor scores_BK = block.scores(scratch[0]), gradient_BK = block.scores(scratch[1]);
    const at::Tensor q_Bd = block.of(head.q_Ld), dy_Bd = block.of(dy_Ld);
    const at::Tensor k_Kd = block.seen(head.k_Sd);
    at::mm_out(scores_BK, q_Bd, k_Kd.t());
    at::mm_out(gradient_BK, dy_Bd, block.seen(head.v_Sd).t());
    kernels::run(kernels::AttentionSoftmaxBackward{.scores = floats(scores_BK),
                                                   .gradient = floats(gradient_BK),
                                                   .rows = block.rows,
                                                   .columns = block.columns,
                                                   .first_visible = block.first_visible,
                                                   .scale = head.scale,
                                                   .log_sum = log_sum_L + first,
                                                   .delta = delta_L + first});
    add_product(block.seen(out.dv_Sd), scores_BK.t(), dy_Bd, add);
    add_product(block.seen(out.dk_Sd), gradient_BK.t(), q_Bd, add);
    add_product(block.of(out.dq_Ld), gradient_BK, k_Kd, out.add_to_queries);
  }
}

}  // namespace keyseat::nn
