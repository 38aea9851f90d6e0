// Legend: T tokens, K choices, M dispatched rows, H hidden.
#include "keyseat/nn/row_route.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "keyseat/nn/exchange.h"

namespace keyseat::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Route = c10::intrusive_ptr<RowRoute>;

Route route_of(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<RowRoute>(context->saved_data["route"].toCapsule());
}

class Send : public torch::autograd::Function<Send> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& x_TH,
                               const at::Tensor& weight_TK, const Route& route) {
    context->saved_data["route"] = c10::IValue::make_capsule(route);
    const Weighted sent = route->send({x_TH, weight_TK});
    return {sent.rows, sent.weight};
  }
  // Both gradients travel, whoever needs them: the collectives depend on nothing but the config.
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Weighted back = route_of(context)->bring_back({gradients[0], gradients[1]});
    return {back.rows, back.weight, at::Tensor()};
  }
};

class BringBack : public torch::autograd::Function<BringBack> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows_MH,
                            const Route& route) {
    context->saved_data["route"] = c10::IValue::make_capsule(route);
    return route->bring_back({rows_MH, {}}).rows;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {route_of(context)->send({gradients[0], {}}).rows, at::Tensor()};
  }
};

class MetaRoute final : public RowRoute {
 public:
  MetaRoute(int64_t tokens, int64_t top_k, int64_t rows)
      : tokens_(tokens), top_k_(top_k), rows_(rows) {}
  Weighted send(const Weighted& tokens) const override {
    return {shaped(tokens.rows, {rows_, tokens.rows.size(1)}), shaped(tokens.weight, {rows_})};
  }
  Weighted bring_back(const Weighted& rows) const override {
    return {shaped(rows.rows, {tokens_, rows.rows.size(1)}),
            shaped(rows.weight, {tokens_, top_k_})};
  }

 private:
  static at::Tensor shaped(const at::Tensor& like, at::IntArrayRef shape) {
    return like.defined() ? at::zeros(shape, like.options()) : at::Tensor();
  }
  int64_t tokens_, top_k_, rows_;
};

}  // namespace

Weighted all_to_all(CommGroup& group, const Weighted& rows,
                    const std::vector<int64_t>& output_counts,
                    const std::vector<int64_t>& input_counts) {
  Exchange moved = begin_all_to_all(group, rows.rows, output_counts, input_counts);
  Exchange weighed = begin_all_to_all(group, rows.weight, output_counts, input_counts);
  return {moved.wait(), weighed.wait()};
}

RowRoute::~RowRoute() = default;

RoutePlan::RoutePlan(Route route, std::vector<int64_t> counts, at::Device device)
    : route(std::move(route)),
      tokens_per_expert_E(at::tensor(counts, at::kLong).to(device)),
      host_counts(std::move(counts)) {}
RoutePlan::~RoutePlan() = default;

Dispatched RoutedDispatcher::dispatch_(const std::shared_ptr<DispatchPlan>& plan,
                                       const at::Tensor& x_TH, const at::Tensor& weight_TK,
                                       StepContext& /*context*/) {
  const auto& routed = static_cast<const RoutePlan&>(*plan);
  const variable_list sent = Send::apply(x_TH, weight_TK, routed.route);
  return {sent[0], sent[1], routed.tokens_per_expert_E, routed.host_counts};
}

at::Tensor RoutedDispatcher::combine_(const std::shared_ptr<DispatchPlan>& plan,
                                      const at::Tensor& rows_MH, StepContext& /*context*/) {
  return BringBack::apply(rows_MH, static_cast<const RoutePlan&>(*plan).route);
}

void check_choices(const at::Tensor& topk_index_TK, int64_t experts, const StepContext& context) {
  if (!topk_index_TK.is_cpu()) return;
  const at::Tensor index_TK = topk_index_TK.contiguous();
  const int64_t* index = index_TK.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < index_TK.numel(); ++i) {
    if (index[i] >= -1 && index[i] < experts) continue;
    throw Error(
        Problem{Code::kR4Contract,
                {},
                fmt::format("unit {} routes to expert {} of {}", context.unit(), index[i], experts),
                "a top-k index is -1 (not routed) or names an expert",
                "check the number of experts of the layer against its router"});
  }
}

std::shared_ptr<DispatchPlan> meta_plan(int64_t tokens, int64_t top_k, int64_t rows,
                                        int64_t local_experts) {
  std::vector<int64_t> counts(static_cast<size_t>(local_experts), 0);
  counts.front() = rows;
  return std::make_shared<RoutePlan>(c10::make_intrusive<MetaRoute>(tokens, top_k, rows),
                                     std::move(counts), at::kMeta);
}

}  // namespace keyseat::nn
