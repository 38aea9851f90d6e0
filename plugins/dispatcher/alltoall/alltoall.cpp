#include "alltoall.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "keyseat/nn/exchange.h"
#include "route.h"

namespace keyseat_dispatcher_alltoall {

using keyseat::Axis;

namespace {

Groups groups_of(const keyseat::StepContext& context) {
  Groups groups;
  const keyseat::Mesh* mesh = context.state().mesh;
  if (mesh == nullptr) return groups;  // a layer called on its own
  groups.expert_degree = mesh->degree(Axis::kExpert);
  groups.expert_tensor_degree = mesh->degree(Axis::kExpertTensor);
  if (groups.expert_degree > 1) {
    groups.expert = &context.state().comm->group(mesh->group({Axis::kExpert}));
  }
  if (groups.expert_tensor_degree > 1) {
    groups.expert_tensor = &context.state().comm->group(mesh->group({Axis::kExpertTensor}));
  }
  return groups;
}

// [expert_tensor ranks, expert ranks, local experts]: rows that arrive in the ranks which hold
// slices of this rank's experts.
at::Tensor exchange_counts(const Groups& groups, const Counts& rows_of_expert, at::Device device) {
  const auto experts = static_cast<int64_t>(rows_of_expert.size());
  const int64_t ranks = groups.expert_degree, slices = groups.expert_tensor_degree;
  const int64_t local = experts / ranks;
  at::Tensor rows_E = at::tensor(rows_of_expert, at::kLong).to(device);
  if (groups.expert != nullptr) {
    const Counts each(static_cast<size_t>(ranks), local);
    rows_E = keyseat::nn::begin_all_to_all(*groups.expert, rows_E, each, each).wait();
  }
  if (groups.expert_tensor != nullptr) {
    const Counts each(static_cast<size_t>(slices), experts);
    rows_E = keyseat::nn::begin_all_gather(*groups.expert_tensor, rows_E, each).wait();
  }
  return rows_E.to(at::kCPU).view({slices, ranks, local});
}

void require_equal_blocks(const at::Tensor& rows_tre, int64_t capacity) {
  if (capacity == 0) return;
  const int64_t* rows = rows_tre.const_data_ptr<int64_t>();
  const auto other =
      std::find_if(rows, rows + rows_tre.numel(), [&](int64_t block) { return block != capacity; });
  if (other == rows + rows_tre.numel()) return;
  throw keyseat::Error(keyseat::Problem{
      keyseat::Code::kR6Data,
      {},
      fmt::format("dispatcher/alltoall: this rank pads experts to {} rows, another one to {}",
                  capacity, *other),
      "with router_capacity = \"pad\" every rank needs the same number of row slots",
      "give every rank rows of one size, or use router_capacity = \"drop\""});
}

}  // namespace

keyseat::OptionSchema AllToAll::options() { return {}; }

AllToAll::AllToAll(const keyseat::Options& /*options*/, const keyseat::PluginHost& /*host*/) {}

keyseat::DispatcherCapabilities AllToAll::capabilities() const {
  keyseat::DispatcherCapabilities capabilities;
  capabilities.host_counts = true;
  capabilities.host_syncs = 1;  // the counts; the plan itself is made on the host
  capabilities.supports_expert_tensor = true;
  capabilities.supports_capacity_pad = true;
  return capabilities;
}

std::shared_ptr<keyseat::DispatchPlan> AllToAll::plan_(const at::Tensor& topk_index_TK,
                                                       int64_t experts,
                                                       keyseat::StepContext& context) {
  return plan_padded_(topk_index_TK, experts, /*capacity=*/0, context);
}

std::shared_ptr<keyseat::DispatchPlan> AllToAll::plan_padded_(const at::Tensor& topk_index_TK,
                                                              int64_t experts, int64_t capacity,
                                                              keyseat::StepContext& context) {
  keyseat::nn::check_choices(topk_index_TK, experts, context);
  const at::Device device = topk_index_TK.device();
  if (topk_index_TK.is_meta()) {
    const keyseat::Mesh* mesh = context.state().mesh;
    const int64_t ranks = mesh == nullptr ? 1 : mesh->degree(Axis::kExpert);
    const int64_t slices = mesh == nullptr ? 1 : mesh->degree(Axis::kExpertTensor);
    const int64_t rows = capacity > 0 ? capacity * experts : topk_index_TK.numel();
    return keyseat::nn::meta_plan(topk_index_TK.size(0), topk_index_TK.size(1), rows * slices,
                                  experts / ranks);
  }
  const Groups groups = groups_of(context);
  Sorted sorted = sort_by_expert(topk_index_TK, experts, capacity);
  const at::Tensor rows_tre = exchange_counts(groups, sorted.rows_of_expert, device);
  require_equal_blocks(rows_tre, capacity);
  const int64_t own = groups.expert_tensor == nullptr ? 0 : groups.expert_tensor->rank();
  Received received = sort_received(rows_tre, own);
  Counts counts = received.rows_of_expert;
  return std::make_shared<keyseat::nn::RoutePlan>(
      c10::make_intrusive<Route>(groups, std::move(sorted), std::move(received), device),
      std::move(counts), device);
}

}  // namespace keyseat_dispatcher_alltoall
