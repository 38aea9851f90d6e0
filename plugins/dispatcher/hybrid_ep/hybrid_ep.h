// Dispatcher `hybrid_ep`: the two-level exchange. A token crosses to another node once, whatever
// number of experts it needs there, and is distributed inside the node; combine adds inside the
// node before it crosses back. Legend: T tokens, K choices, M dispatched rows, H hidden, E experts.
#pragma once

#include "keyseat/interfaces/comm.h"
#include "keyseat/nn/row_route.h"

namespace keyseat_dispatcher_hybrid_ep {

class HybridEp final : public keyseat::nn::RoutedDispatcher {
 public:
  static keyseat::OptionSchema options();
  static keyseat::Problems validate(const keyseat::Options& options);
  HybridEp(const keyseat::Options& options, const keyseat::PluginHost& host);

  keyseat::DispatcherCapabilities capabilities() const override;
  keyseat::Problems validate(const keyseat::DispatcherFacts& facts,
                             const keyseat::Mesh& mesh) const override;
  keyseat::DispatcherTraffic traffic(const keyseat::DispatcherWork& work,
                                     const keyseat::Mesh& mesh) const override;

 private:
  std::shared_ptr<keyseat::DispatchPlan> plan_(const at::Tensor& topk_index_TK, int64_t experts,
                                               keyseat::StepContext& context) override;
  // T of every rank, padded to the largest.
  int64_t agree_on_tokens(keyseat::CommGroup& group, int64_t tokens, at::Device device) const;

  bool bounded_;
  double rows_factor_;
  bool refuse_unequal_;
};

}  // namespace keyseat_dispatcher_hybrid_ep
