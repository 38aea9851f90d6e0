// Legend: T rows, H hidden, E experts, K top-k, R real rows (not of the padding tail).
#include "keyseat/nn/router.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nn/contract.h"
#include "nn/naive.h"
#include "nn/parameter_gradient.h"
#include "nn/router_limits.h"
#include "nn/router_weights.h"

namespace keyseat::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// fp32(x) gate^T. Saves x in its own type and casts it again in backward, so that a bf16 run keeps
// no fp32 copy of the hidden rows.
class RouterLogits : public torch::autograd::Function<RouterLogits> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_TH,
                            const at::Tensor& gate_EH, const ParamHandle& handle) {
    context->save_for_backward({x_TH});
    context->saved_data["gate"] = handle.capsule();
    return at::linear(x_TH.to(gate_EH.scalar_type()), gate_EH);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor& logits_gradient_TE = gradients[0];
    const at::Tensor x_TH = context->get_saved_variables()[0];
    const ParamHandle gate_EH = ParamHandle::from_capsule(context->saved_data["gate"]);
    at::Tensor x_gradient_TH, gate_gradient_EH;
    if (context->needs_input_grad(0)) {
      x_gradient_TH = at::mm(logits_gradient_TE, gate_EH.value()).to(x_TH.scalar_type());
    }
    if (context->needs_input_grad(1)) {
      gate_gradient_EH =
          hand_over_product(gate_EH, logits_gradient_TE, x_TH.to(logits_gradient_TE.scalar_type()));
    }
    return {x_gradient_TH, gate_gradient_EH, at::Tensor()};
  }
};

void check_router(const at::Tensor& x_TH, const ParamHandle& gate_EH, const RouterOptions& options,
                  const StepContext& context) {
  const at::Tensor& gate = gate_EH.value();
  const bool shapes_fit = x_TH.dim() == 2 && gate.dim() == 2 && x_TH.size(1) == gate.size(1);
  const bool types_fit = gate.scalar_type() == naive::wide_type(x_TH);
  if (shapes_fit && types_fit && options.top_k >= 1 && options.top_k <= gate.size(0)) return;
  contract_error(
      fmt::format("unit {}: the router got rows {} of type {}, a gate {} of type {} and top_k {}",
                  context.unit(), fmt::join(x_TH.sizes(), "x"), at::toString(x_TH.scalar_type()),
                  fmt::join(gate.sizes(), "x"), at::toString(gate.scalar_type()), options.top_k),
      "rows are [T, H], the gate is [E, H] in fp32 (keep_fp32), and 1 <= top_k <= E",
      "check the block's ParamSpec and its top-k option");
}

}  // namespace

Routing route(const at::Tensor& x_TH, const ParamHandle& gate_EH, const RouterOptions& options,
              StepContext& context) {
  check_router(x_TH, gate_EH, options, context);
  const int64_t rows = x_TH.size(0);
  const int64_t real = std::min(rows, context.row().counts.tokens);
  const bool naive = context.kernels() == Kernels::kNaive || !x_TH.is_cpu();
  Routing routing;
  routing.logits_TE = context.kernels() == Kernels::kNaive
                          ? at::linear(x_TH.to(gate_EH.value().scalar_type()), gate_EH.value())
                          : RouterLogits::apply(x_TH, gate_EH.value(), gate_EH);
  const RouterProbabilities probabilities = router_probabilities(routing.logits_TE.detach(), naive);
  const int64_t experts = gate_EH.value().size(0);
  const at::Tensor chosen_TK = context.keep<at::Tensor>("topk", [&] {
    if (options.forced_balance) {
      return balanced_choices(rows, real, options.top_k, experts,
                              context.random_seed(Region::kMoeRouter))
          .to(x_TH.device());
    }
    at::Tensor index_TK =
        top_k_by_index(probabilities.probability_TE, options.top_k, context.kernels());
    index_TK.narrow(0, real, rows - real).fill_(-1);
    return index_TK;
  });
  auto [weight_TK, stats_2E, z_1] =
      naive
          ? router_weights_naive(routing.logits_TE, chosen_TK, real, options.renormalise)
          : router_weights(routing.logits_TE, probabilities, chosen_TK, real, options.renormalise);
  routing.index_TK = chosen_TK;
  routing.weight_TK = weight_TK;
  if (options.capacity_factor > 0 && !x_TH.is_meta()) {
    // A padded layout needs one capacity on every rank, so there the padding tail counts, too.
    const int64_t capacity = expert_capacity(options, options.capacity_pad ? rows : real, experts);
    routing.index_TK = context.keep<at::Tensor>("kept", [&, weight = weight_TK.detach()] {
      return drop_above_capacity(chosen_TK, weight, experts, capacity, options.drop_policy);
    });
    routing.weight_TK = weight_TK.masked_fill(routing.index_TK.lt(0), 0);
  }
  routing.stats_2E = std::move(stats_2E);
  routing.z_1 = std::move(z_1);
  return routing;
}

}  // namespace keyseat::nn
