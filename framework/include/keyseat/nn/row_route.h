// What a dispatcher that sends rows between ranks is made of: a route, which moves rows to experts
// and back, and autograd around it. Legend: T tokens, K choices, M dispatched rows, H hidden.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <utility>
#include <vector>

#include "keyseat/interfaces/comm.h"
#include "keyseat/interfaces/dispatcher.h"

namespace keyseat::nn {

// Rows and one weight per row, or one weight per choice. The weights may be undefined: then none
// travel.
struct Weighted {
  at::Tensor rows;
  at::Tensor weight;
};

// Rows and weights exchanged with the same counts, both under way at once.
KEYSEAT_API Weighted all_to_all(CommGroup& group, const Weighted& rows,
                                const std::vector<int64_t>& output_counts,
                                const std::vector<int64_t>& input_counts);

// Two linear maps, each the transpose of the other. Both run their collectives whatever the data;
// backward runs them with what forward saved, so a route holds every size and table it needs.
class KEYSEAT_API RowRoute : public torch::CustomClassHolder {
 public:
  ~RowRoute() override;
  // x [T, H], weight [T, K] -> [M, H], [M]: a copy of every token for each of its choices.
  virtual Weighted send(const Weighted& tokens) const = 0;
  // [M, H], [M] -> [T, H], [T, K]: the sum of the copies. Rows past the used prefix are not read.
  virtual Weighted bring_back(const Weighted& rows) const = 0;
};

// The plan of a routed dispatcher.
struct KEYSEAT_API RoutePlan : DispatchPlan {
  RoutePlan(c10::intrusive_ptr<RowRoute> route, std::vector<int64_t> counts, at::Device device);
  ~RoutePlan() override;
  c10::intrusive_ptr<RowRoute> route;
  at::Tensor tokens_per_expert_E;  // on the device
  std::vector<int64_t> host_counts;
};

// A dispatcher that only has to plan: dispatch is `send` with `bring_back` as its backward, combine
// is `bring_back` with `send` as its backward, each one autograd node. Host counts are given.
class KEYSEAT_API RoutedDispatcher : public Dispatcher {
 protected:
  Dispatched dispatch_(const std::shared_ptr<DispatchPlan>& plan, const at::Tensor& x_TH,
                       const at::Tensor& weight_TK, StepContext& context) final;
  at::Tensor combine_(const std::shared_ptr<DispatchPlan>& plan, const at::Tensor& rows_MH,
                      StepContext& context) final;
};

// Throws R4 where an index is neither -1 nor an expert. Values on a device are not looked at.
KEYSEAT_API void check_choices(const at::Tensor& topk_index_TK, int64_t experts,
                               const StepContext& context);

// A plan for meta tensors, which have no values to route by: `rows` rows arrive, nothing moves.
KEYSEAT_API std::shared_ptr<DispatchPlan> meta_plan(int64_t tokens, int64_t top_k, int64_t rows,
                                                    int64_t local_experts);

}  // namespace keyseat::nn
