// Dispatcher `alltoall`: every (token, choice) pair is a row that goes straight to the rank of its
// expert. Legend: T tokens, K choices, S sent rows, R received rows, M dispatched rows, H hidden, E
// experts, e local experts.
#pragma once

#include "keyseat/nn/row_route.h"

namespace keyseat_dispatcher_alltoall {

class AllToAll final : public keyseat::nn::RoutedDispatcher {
 public:
  static keyseat::OptionSchema options();
  AllToAll(const keyseat::Options& options, const keyseat::PluginHost& host);

  keyseat::DispatcherCapabilities capabilities() const override;
  keyseat::DispatcherTraffic traffic(const keyseat::DispatcherWork& work,
                                     const keyseat::Mesh& mesh) const override;

 private:
  std::shared_ptr<keyseat::DispatchPlan> plan_(const at::Tensor& topk_index_TK, int64_t experts,
                                               keyseat::StepContext& context) override;
  std::shared_ptr<keyseat::DispatchPlan> plan_padded_(const at::Tensor& topk_index_TK,
                                                      int64_t experts, int64_t capacity,
                                                      keyseat::StepContext& context) override;
};

}  // namespace keyseat_dispatcher_alltoall
