// Legend: T rows, K choices, H hidden, E experts, I expert width, M dispatched rows.
#include "keyseat/interfaces/dispatcher.h"
#include "keyseat/nn/activation.h"
#include "keyseat/nn/moe.h"

namespace keyseat::nn {
namespace {

using TensorList = std::vector<at::Tensor>;
using Plan = std::shared_ptr<DispatchPlan>;

// Region functions may run again in backward, long after moe_layer returned: they hold copies of
// what they use. The context outlives the backward of its unit.

TensorList router_region(const at::Tensor& x_TH, const ParamHandle& router_EH,
                         const RouterOptions& options, StepContext& context) {
  const RegionFunction run = [router_EH, options, &context](const TensorList& inputs) {
    Routing routing = route(inputs[0], router_EH, options, context);
    return TensorList{routing.logits_TE, routing.index_TK, routing.weight_TK, routing.stats_2E,
                      routing.z_1};
  };
  return context.region(Region::kMoeRouter, run, {x_TH});
}

// A plan is no tensor: the region hands it out beside its empty list of results.
Plan plan_region(const at::Tensor& index_TK, int64_t experts, int64_t capacity,
                 StepContext& context) {
  const auto plan = std::make_shared<Plan>();
  const RegionFunction run = [plan, experts, capacity, &context](const TensorList& inputs) {
    *plan = context.keep<Plan>(
        "plan", [&] { return context.dispatcher().plan(inputs[0], experts, context, capacity); });
    return TensorList{};
  };
  context.region(Region::kMoePreprocess, run, {index_TK});
  return *plan;
}

at::Tensor activation_region(const at::Tensor& gate_up_M2I, const at::Tensor& row_weight_M,
                             StepContext& context) {
  const RegionFunction run = [kernels = context.kernels()](const TensorList& inputs) {
    return TensorList{weighted_swiglu(inputs[0], inputs[1], kernels)};
  };
  return context.region(Region::kMoeAct, run, {gate_up_M2I, row_weight_M})[0];
}

}  // namespace

MoeOutput moe_layer(const at::Tensor& x_TH, const ParamHandle& router_EH,
                    const ParamHandle& gate_up_e2IH, const ParamHandle& down_eHI,
                    const RouterOptions& options, StepContext& context) {
  const RegionFunction run = [router_EH, gate_up_e2IH, down_eHI, options,
                              &context](const TensorList& inputs) {
    const at::Tensor& x_TH = inputs[0];
    TensorList results = router_region(x_TH, router_EH, options, context);
    const at::Tensor index_TK = results[1];
    const at::Tensor weight_TK = results[2];
    Dispatcher& dispatcher = context.dispatcher();
    const int64_t experts = router_EH.value().size(0);
    const int64_t capacity =
        options.capacity_pad ? expert_capacity(options, x_TH.size(0), experts) : 0;
    const Plan plan = plan_region(index_TK, experts, capacity, context);
    const Dispatched sent = dispatcher.dispatch(plan, x_TH, weight_TK, context);
    const at::Tensor gate_up_M2I =
        grouped_linear(sent.rows_MH, gate_up_e2IH, sent.tokens_per_expert_E,
                       sent.host_tokens_per_expert, context.kernels());
    const at::Tensor act_MI = activation_region(gate_up_M2I, sent.row_weight_M, context);
    const at::Tensor down_MH = grouped_linear(act_MI, down_eHI, sent.tokens_per_expert_E,
                                              sent.host_tokens_per_expert, context.kernels());
    results.push_back(dispatcher.combine(plan, down_MH, context));
    return results;
  };
  const TensorList results = context.region(Region::kMoe, run, {x_TH});
  MoeOutput output;
  output.routing = {results[0], results[1], results[2], results[3], results[4]};
  output.y_TH = results[5];
  context.tap("router_logits", output.routing.logits_TE);
  context.tap("topk_index", output.routing.index_TK);
  context.tap("topk_weight", output.routing.weight_TK);
  return output;
}

}  // namespace keyseat::nn
