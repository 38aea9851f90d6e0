// Causal attention of fp32 CPU tensors, head by head (nn/attention_head.h). LibTorch's flash
// attention computes the hidden half of the scores too.
// Legend: T rows, n query heads, m key/value heads, d head dim, L rows of one segment.
#include "nn/attention_blocks.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <atomic>

#include "nn/attention_flash.h"
#include "nn/attention_head.h"
#include "nn/kernels/attention_softmax.h"

namespace keyseat::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// All query heads of one key head in one segment: what one thread does alone.
struct Task {
  int64_t begin, length, key_head;
};

// Longest first, so that threads end together.
std::vector<Task> tasks_of(const std::vector<int64_t>& cu_seqlens, int64_t key_heads) {
  std::vector<Task> tasks;
  for (size_t i = 0; i + 1 < cu_seqlens.size(); ++i)
    for (int64_t head = 0; head < key_heads && cu_seqlens[i + 1] > cu_seqlens[i]; ++head)
      tasks.push_back({cu_seqlens[i], cu_seqlens[i + 1] - cu_seqlens[i], head});
  std::stable_sort(tasks.begin(), tasks.end(),
                   [](const Task& a, const Task& b) { return a.length > b.length; });
  return tasks;
}

// Calls body(task) for every task; each thread takes the next one that is left.
template <typename Body>
void run_tasks(const std::vector<Task>& tasks, const Body& body) {
  std::atomic<size_t> next{0};
  const int64_t threads = std::min<int64_t>(at::get_num_threads(), tasks.size());
  at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    // Worker threads do not inherit that gradients are off.
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (size_t i = next++; i < tasks.size(); i = next++) body(tasks[i]);
  });
}

at::Tensor head_of(const at::Tensor& x_Tnd, const Task& task, int64_t head) {
  return x_Tnd.narrow(0, task.begin, task.length).select(1, head);
}

float* data_of(const at::Tensor& x) { return x.mutable_data_ptr<float>(); }

at::Tensor scratch_of(const at::Tensor& like, const Task& task) {
  return head_scratch(like.options(), task.length, task.length);
}

struct BlockAttentionFunction : torch::autograd::Function<BlockAttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const std::vector<int64_t>& cu_seqlens,
                            double scale) {
    const int64_t rows = q.size(0), group = q.size(1) / k.size(1);
    at::Tensor y = at::empty(q.sizes(), q.options());
    at::Tensor log_sum_nT = at::empty({q.size(1), rows}, q.options());
    run_tasks(tasks_of(cu_seqlens, k.size(1)), [&](const Task& task) {
      const at::Tensor k_Ld = head_of(k, task, task.key_head),
                       v_Ld = head_of(v, task, task.key_head);
      const at::Tensor scratch = scratch_of(q, task);
      for (int64_t head = task.key_head * group; head < (task.key_head + 1) * group; ++head) {
        forward_head({head_of(q, task, head), k_Ld, v_Ld, /*visible=*/1, static_cast<float>(scale)},
                     head_of(y, task, head), data_of(log_sum_nT) + head * rows + task.begin,
                     scratch);
      }
    });
    context->save_for_backward({q, k, v, y, log_sum_nT});
    context->saved_data["cu_seqlens"] = cu_seqlens;
    context->saved_data["scale"] = scale;
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &y = saved[3];
    const at::Tensor &log_sum_nT = saved[4], &dy_in = gradients[0];
    const at::Tensor dy = dy_in.stride(2) == 1 ? dy_in : dy_in.contiguous();
    const float scale = static_cast<float>(context->saved_data["scale"].toDouble());
    const int64_t rows = q.size(0), group = q.size(1) / k.size(1);
    const auto tasks = tasks_of(context->saved_data["cu_seqlens"].toIntVector(), k.size(1));
    at::Tensor dq = at::empty(q.sizes(), q.options()), dk = at::empty(k.sizes(), k.options());
    at::Tensor dv = at::empty(v.sizes(), v.options()), delta_nT = at::empty_like(log_sum_nT);
    run_tasks(tasks, [&](const Task& task) {
      const int64_t key_head = task.key_head;
      const at::Tensor k_Ld = head_of(k, task, key_head), v_Ld = head_of(v, task, key_head);
      const std::array<at::Tensor, 2> scratch = {scratch_of(q, task), scratch_of(q, task)};
      for (int64_t head = key_head * group; head < (key_head + 1) * group; ++head) {
        const at::Tensor y_Ld = head_of(y, task, head), dy_Ld = head_of(dy, task, head);
        float* delta_L = data_of(delta_nT) + head * rows + task.begin;
        kernels::run(kernels::RowDots{.a = y_Ld.const_data_ptr<float>(),
                                      .a_stride = y_Ld.stride(0),
                                      .b = dy_Ld.const_data_ptr<float>(),
                                      .b_stride = dy_Ld.stride(0),
                                      .delta = delta_L,
                                      .rows = task.length,
                                      .width = y_Ld.size(1)});
        const HeadGradients out{.dq_Ld = head_of(dq, task, head),
                                .dk_Sd = head_of(dk, task, key_head),
                                .dv_Sd = head_of(dv, task, key_head),
                                .add_to_keys = head > key_head * group};
        backward_head({head_of(q, task, head), k_Ld, v_Ld, /*visible=*/1, scale}, dy_Ld,
                      log_sum_nT.const_data_ptr<float>() + head * rows + task.begin, delta_L, out,
                      scratch);
      }
    });
    return {dq, dk, dv, {}, {}};
  }
};

}  // namespace

bool block_attention_takes(const at::Tensor& q_Tnd, const at::Tensor& k_Tmd,
                           const std::vector<int64_t>& cu_seqlens) {
  if (q_Tnd.scalar_type() != at::kFloat) return false;
  const int64_t key_heads = k_Tmd.size(1), tasks = tasks_of(cu_seqlens, key_heads).size();
  const bool several_blocks = q_Tnd.size(0) * key_heads >= 2 * kBlockRows * tasks;
  return several_blocks && tasks >= at::get_num_threads();
}

at::Tensor block_attention(const at::Tensor& q_Tnd, const at::Tensor& k_Tmd,
                           const at::Tensor& v_Tmd, const std::vector<int64_t>& cu_seqlens,
                           double scale) {
  return BlockAttentionFunction::apply(last_dim_packed(q_Tnd), last_dim_packed(k_Tmd),
                                       last_dim_packed(v_Tmd), cu_seqlens, scale);
}

}  // namespace keyseat::nn
