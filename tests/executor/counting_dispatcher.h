// dispatcher/local with counters.
#pragma once

#include "train/model_fixture.h"

namespace keyseat::testing {

class CountingDispatcher final : public Dispatcher {
 public:
  using Calls = std::map<std::pair<int64_t, std::string>, int>;  // by micro-batch and unit
  Calls plans, dispatches, combines;

  DispatcherCapabilities capabilities() const override { return local_->capabilities(); }

 private:
  static int& count(Calls& calls, const StepContext& context) {
    return calls[{context.state().micro_batch, context.unit()}];
  }
  std::shared_ptr<DispatchPlan> plan_(const at::Tensor& topk_index_TK, int64_t experts,
                                      StepContext& context) override {
    ++count(plans, context);
    return local_->plan(topk_index_TK, experts, context);
  }
  Dispatched dispatch_(const std::shared_ptr<DispatchPlan>& plan, const at::Tensor& x_TH,
                       const at::Tensor& weight_TK, StepContext& context) override {
    ++count(dispatches, context);
    return local_->dispatch(plan, x_TH, weight_TK, context);
  }
  at::Tensor combine_(const std::shared_ptr<DispatchPlan>& plan, const at::Tensor& rows_MH,
                      StepContext& context) override {
    ++count(combines, context);
    return local_->combine(plan, rows_MH, context);
  }

  std::shared_ptr<Dispatcher> local_ = make_plugin<Dispatcher>("local");
};

}  // namespace keyseat::testing
