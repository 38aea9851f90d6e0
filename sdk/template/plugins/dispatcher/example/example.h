// Dispatcher `example`: all experts are in this process; rows find their expert by one stable sort.
// Legend: T tokens, K choices of a token, M = T * K dispatched rows, H hidden, E experts.
#pragma once

#include "keyseat/interfaces/dispatcher.h"

namespace keyseat_dispatcher_example {

class SortingDispatcher final : public keyseat::Dispatcher {
 public:
  static keyseat::OptionSchema options();
  SortingDispatcher(const keyseat::Options& options, const keyseat::PluginHost& host);

  keyseat::DispatcherCapabilities capabilities() const override;
  keyseat::Problems validate(const keyseat::DispatcherFacts& facts,
                             const keyseat::Mesh& mesh) const override;

 private:
  std::shared_ptr<keyseat::DispatchPlan> plan_(const at::Tensor& topk_index_TK, int64_t experts,
                                               keyseat::StepContext& context) override;
  keyseat::Dispatched dispatch_(const std::shared_ptr<keyseat::DispatchPlan>& plan,
                                const at::Tensor& x_TH, const at::Tensor& weight_TK,
                                keyseat::StepContext& context) override;
  at::Tensor combine_(const std::shared_ptr<keyseat::DispatchPlan>& plan, const at::Tensor& rows_MH,
                      keyseat::StepContext& context) override;

  bool check_indices_;
};

}  // namespace keyseat_dispatcher_example
