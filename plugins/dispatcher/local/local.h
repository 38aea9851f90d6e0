// Dispatcher `local`: all experts are in this process. With virtual_ranks = N > 1 the rows go
// through the buffers of an exchange between N expert-parallel ranks, with equal results.
// Legend: T tokens, K choices, M = dispatched rows, H hidden, E experts.
#pragma once

#include "keyseat/interfaces/dispatcher.h"

namespace keyseat_dispatcher_local {

class Local final : public keyseat::Dispatcher {
 public:
  static keyseat::OptionSchema options();
  Local(const keyseat::Options& options, const keyseat::PluginHost& host);

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

  keyseat::Options options_;
  int64_t virtual_ranks_;
};

}  // namespace keyseat_dispatcher_local
