#include "example.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include "keyseat/mesh.h"
#include "keyseat/nn/moe.h"

namespace keyseat_dispatcher_example {

using keyseat::Code;
using keyseat::Problem;

namespace {

// What dispatch, combine and their backward have to know of one routing.
struct Plan final : keyseat::DispatchPlan {
  at::Tensor source_M;  // token of every row; rows lie in the order (expert, token, choice)
  at::Tensor slot_TK;   // row of every (token, choice), -1 where it is not routed
  at::Tensor counts_E;  // rows of every expert; the rows behind their sum are not read
};

const Plan& cast(const std::shared_ptr<keyseat::DispatchPlan>& plan) {
  return static_cast<const Plan&>(*plan);
}

}  // namespace

keyseat::OptionSchema SortingDispatcher::options() {
  return {
      keyseat::Option("check_indices", keyseat::OptionType::kBool)
          .defaults_to(true)
          .level(keyseat::OptionLevel::kTuning)
          .doc("Refuses a router's index that names no expert; on a device this waits for it.")};
}

SortingDispatcher::SortingDispatcher(const keyseat::Options& options, const keyseat::PluginHost&)
    : check_indices_(options.get_bool("check_indices")) {}

keyseat::DispatcherCapabilities SortingDispatcher::capabilities() const { return {}; }

keyseat::Problems SortingDispatcher::validate(const keyseat::DispatcherFacts&,
                                              const keyseat::Mesh& mesh) const {
  const int64_t degree = mesh.degree(keyseat::Axis::kExpert);
  if (degree == 1) return {};
  return {Problem{Code::kC4Combination,
                  {},
                  fmt::format("dispatcher/example cannot serve an expert degree of {}", degree),
                  "it keeps all experts in this process",
                  "set the strategy's option expert to 1"}};
}

std::shared_ptr<keyseat::DispatchPlan> SortingDispatcher::plan_(const at::Tensor& topk_index_TK,
                                                                int64_t experts,
                                                                keyseat::StepContext&) {
  const at::Tensor expert_M = topk_index_TK.reshape({-1});
  const bool has_values = !expert_M.is_meta();
  if (check_indices_ && has_values &&
      expert_M.lt(-1).logical_or(expert_M.ge(experts)).any().item<bool>()) {
    throw keyseat::Error(
        Problem{Code::kR4Contract,
                {},
                fmt::format("a top-k index is neither -1 nor one of {} experts", experts),
                "",
                ""});
  }
  // What is not routed sorts behind the last expert. The sort is stable: rows of one expert keep
  // the order of their tokens, so that every run adds in the same order.
  const at::Tensor key_M = expert_M.masked_fill(expert_M.lt(0), experts);
  const at::Tensor order_M = at::argsort(key_M, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const at::Tensor row_M = at::arange(order_M.size(0), order_M.options());
  auto plan = std::make_shared<Plan>();
  plan->source_M = order_M.div(topk_index_TK.size(1), "floor");
  plan->slot_TK = at::empty_like(order_M)
                      .scatter(0, order_M, row_M)
                      .masked_fill(expert_M.lt(0), -1)
                      .view(topk_index_TK.sizes());
  plan->counts_E = at::zeros({experts + 1}, order_M.options())
                       .scatter_add(0, key_M, at::ones_like(key_M))
                       .narrow(0, 0, experts);
  return plan;
}

keyseat::Dispatched SortingDispatcher::dispatch_(const std::shared_ptr<keyseat::DispatchPlan>& plan,
                                                 const at::Tensor& x_TH,
                                                 const at::Tensor& weight_TK,
                                                 keyseat::StepContext&) {
  const Plan& p = cast(plan);
  return {keyseat::nn::permute_rows(x_TH, p.source_M, p.slot_TK),
          keyseat::nn::permute_weights(weight_TK, p.slot_TK, p.source_M.size(0)),
          p.counts_E,
          {}};
}

at::Tensor SortingDispatcher::combine_(const std::shared_ptr<keyseat::DispatchPlan>& plan,
                                       const at::Tensor& rows_MH, keyseat::StepContext&) {
  const Plan& p = cast(plan);
  return keyseat::nn::unpermute_rows(rows_MH, p.source_M, p.slot_TK);
}

}  // namespace keyseat_dispatcher_example
