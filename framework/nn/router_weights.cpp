// Legend: T rows, E experts, K top-k, R real rows.
#include "nn/router_weights.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "keyseat/nn/router.h"
#include "nn/logsumexp.h"
#include "nn/router_kernels.h"

namespace keyseat::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Rows per task of at::parallel_for: below it a thread costs more than it saves.
constexpr int64_t kRowGrain = 64;

template <typename Function>
void for_float_type(const at::Tensor& tensor, Function&& function) {
  if (tensor.scalar_type() == at::kDouble) {
    function(double{});
  } else {
    function(float{});
  }
}

class RouterWeightsFunction : public torch::autograd::Function<RouterWeightsFunction> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& logits_TE,
                               const at::Tensor& probability_TE, const at::Tensor& logsumexp_T,
                               const at::Tensor& index_TK, int64_t real, bool renormalise) {
    const int64_t experts = logits_TE.size(1);
    const int64_t top_k = index_TK.size(1);
    at::Tensor weight_TK = at::zeros(index_TK.sizes(), logits_TE.options());
    at::Tensor stats_2E = at::zeros({2, experts}, logits_TE.options());
    at::Tensor z_1 = at::zeros({1}, logits_TE.options());
    for_float_type(logits_TE, [&]<typename T>(T) {
      const T* probability = probability_TE.const_data_ptr<T>();
      const int64_t* index = index_TK.const_data_ptr<int64_t>();
      gather_weights(probability, index, real, experts, top_k, renormalise,
                     weight_TK.mutable_data_ptr<T>());
      sum_statistics(probability, logsumexp_T.const_data_ptr<T>(), index, real, experts, top_k,
                     stats_2E.mutable_data_ptr<T>(), z_1.mutable_data_ptr<T>());
    });
    context->save_for_backward({probability_TE, logsumexp_T, index_TK, weight_TK});
    context->saved_data["real"] = real;
    context->saved_data["renormalise"] = renormalise;
    context->set_materialize_grads(false);
    return {weight_TK, stats_2E, z_1};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& probability_TE = saved[0];
    const at::Tensor& index_TK = saved[2];
    const int64_t real = context->saved_data["real"].toInt();
    const bool renormalise = context->saved_data["renormalise"].toBool();
    const int64_t experts = probability_TE.size(1);
    const int64_t top_k = index_TK.size(1);
    at::Tensor weight_gradient_TK, stats_gradient_2E, z_gradient_1;
    if (gradients[0].defined()) weight_gradient_TK = gradients[0].contiguous();
    if (gradients[1].defined()) stats_gradient_2E = gradients[1].contiguous();
    if (gradients[2].defined()) z_gradient_1 = gradients[2].contiguous();
    at::Tensor logits_gradient_TE = at::empty_like(probability_TE);
    logits_gradient_TE.narrow(0, real, probability_TE.size(0) - real).zero_();
    for_float_type(probability_TE, [&]<typename T>(T) {
      const auto data = [](const at::Tensor& tensor) -> const T* {
        return tensor.defined() ? tensor.const_data_ptr<T>() : nullptr;
      };
      RouterGradient<T> problem;
      problem.probability = data(probability_TE);
      problem.logsumexp = data(saved[1]);
      problem.index = index_TK.const_data_ptr<int64_t>();
      problem.weight = data(saved[3]);
      problem.weight_gradient = data(weight_gradient_TK);
      problem.stats_gradient = data(stats_gradient_2E);
      problem.z_gradient = data(z_gradient_1);
      problem.experts = experts;
      problem.top_k = top_k;
      problem.renormalise = renormalise;
      T* output = logits_gradient_TE.mutable_data_ptr<T>();
      at::parallel_for(0, real, kRowGrain, [&](int64_t begin, int64_t end) {
        logits_gradient(problem, begin, end, output);
      });
    });
    return {logits_gradient_TE, at::Tensor(), at::Tensor(),
            at::Tensor(),       at::Tensor(), at::Tensor()};
  }
};

}  // namespace

RouterProbabilities router_probabilities(const at::Tensor& logits_TE, bool naive) {
  if (naive) return {at::softmax(logits_TE, 1), logsumexp_rows(logits_TE).squeeze(1)};
  const at::Tensor input_TE = logits_TE.contiguous();
  const int64_t rows = input_TE.size(0);
  const int64_t experts = input_TE.size(1);
  RouterProbabilities result{at::empty_like(input_TE), at::empty({rows}, input_TE.options())};
  for_float_type(input_TE, [&]<typename T>(T) {
    const T* input = input_TE.const_data_ptr<T>();
    T* probability = result.probability_TE.mutable_data_ptr<T>();
    T* logsumexp = result.logsumexp_T.mutable_data_ptr<T>();
    at::parallel_for(0, rows, kRowGrain, [&](int64_t begin, int64_t end) {
      softmax_rows(input, begin, end, experts, probability, logsumexp);
    });
  });
  return result;
}

RouterWeights router_weights(const at::Tensor& logits_TE, const RouterProbabilities& probabilities,
                             const at::Tensor& index_TK, int64_t real, bool renormalise) {
  variable_list outputs =
      RouterWeightsFunction::apply(logits_TE, probabilities.probability_TE,
                                   probabilities.logsumexp_T, index_TK, real, renormalise);
  return {outputs[0], outputs[1], outputs[2]};
}

RouterWeights router_weights_naive(const at::Tensor& logits_TE, const at::Tensor& index_TK,
                                   int64_t real, bool renormalise) {
  const int64_t tail = logits_TE.size(0) - real;
  const at::Tensor logits_RE = logits_TE.narrow(0, 0, real);
  const at::Tensor index_RK = index_TK.narrow(0, 0, real);
  const at::Tensor probability_RE = at::softmax(logits_RE, 1);
  at::Tensor weight_RK = probability_RE.gather(1, index_RK);
  if (renormalise) weight_RK = weight_RK.div(weight_RK.sum(1, /*keepdim=*/true));
  const at::Tensor assignments = index_RK.reshape({-1});
  const at::Tensor counts_E =
      at::zeros({logits_TE.size(1)}, logits_TE.options())
          .scatter_add(0, assignments, at::ones_like(assignments, logits_TE.options()));
  const at::Tensor z_1 = logsumexp_rows(logits_RE).square().sum().reshape({1});
  return {at::constant_pad_nd(weight_RK, {0, 0, 0, tail}),
          at::stack({probability_RE.sum(0), counts_E}), z_1};
}

at::Tensor top_k_by_index(const at::Tensor& values_TE, int64_t top_k, Kernels kernels) {
  if (kernels == Kernels::kNaive || !values_TE.is_cpu()) {
    const auto sorted = at::sort(values_TE, /*stable=*/true, /*dim=*/1, /*descending=*/true);
    return std::get<1>(sorted).narrow(1, 0, top_k).contiguous();
  }
  const at::Tensor input_TE = values_TE.contiguous();
  const int64_t rows = input_TE.size(0);
  at::Tensor index_TK = at::empty({rows, top_k}, input_TE.options().dtype(at::kLong));
  int64_t* index = index_TK.mutable_data_ptr<int64_t>();
  for_float_type(input_TE, [&]<typename T>(T) {
    const T* values = input_TE.const_data_ptr<T>();
    at::parallel_for(0, rows, kRowGrain, [&](int64_t begin, int64_t end) {
      top_k_rows(values, begin, end, input_TE.size(1), top_k, index);
    });
  });
  return index_TK;
}

}  // namespace keyseat::nn
