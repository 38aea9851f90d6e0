// A dispatcher that does what another one does; a test changes a step of it.
#pragma once

#include <memory>
#include <utility>

#include "keyseat/interfaces/dispatcher.h"

namespace keyseat::test {

class WrappedDispatcher : public Dispatcher {
 public:
  explicit WrappedDispatcher(std::shared_ptr<Dispatcher> inner) : inner_(std::move(inner)) {}
  DispatcherCapabilities capabilities() const override { return inner_->capabilities(); }
  DispatcherTraffic traffic(const DispatcherWork& work, const Mesh& mesh) const override {
    return inner_->traffic(work, mesh);
  }

 protected:
  std::shared_ptr<DispatchPlan> plan_(const at::Tensor& index, int64_t experts,
                                      StepContext& context) override {
    return inner_->plan(index, experts, context);
  }
  Dispatched dispatch_(const std::shared_ptr<DispatchPlan>& plan, const at::Tensor& x,
                       const at::Tensor& weight, StepContext& context) override {
    return inner_->dispatch(plan, x, weight, context);
  }
  at::Tensor combine_(const std::shared_ptr<DispatchPlan>& plan, const at::Tensor& rows,
                      StepContext& context) override {
    return inner_->combine(plan, rows, context);
  }

 private:
  std::shared_ptr<Dispatcher> inner_;
};

}  // namespace keyseat::test
