// Dispatcher `allgather`: every rank of the dispatch group gets all tokens and keeps the rows of
// its experts; combine is a reduce-scatter. Legend: T tokens, G = tokens of all ranks, K choices,
// M dispatched rows, H hidden.
#pragma once

#include "keyseat/nn/row_route.h"

namespace keyseat_dispatcher_allgather {

class AllGather final : public keyseat::nn::RoutedDispatcher {
 public:
  static keyseat::OptionSchema options();
  AllGather(const keyseat::Options& options, const keyseat::PluginHost& host);

  keyseat::DispatcherCapabilities capabilities() const override;
  keyseat::DispatcherTraffic traffic(const keyseat::DispatcherWork& work,
                                     const keyseat::Mesh& mesh) const override;

 private:
  std::shared_ptr<keyseat::DispatchPlan> plan_(const at::Tensor& topk_index_TK, int64_t experts,
                                               keyseat::StepContext& context) override;
  bool combine_in_fp32_;
};

}  // namespace keyseat_dispatcher_allgather
