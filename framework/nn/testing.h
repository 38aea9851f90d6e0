// Test support: a context for one call of an op, with a dispatcher that needs no plugin.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "keyseat/context.h"
#include "keyseat/interfaces/dispatcher.h"
#include "keyseat/nn/moe.h"
#include "keyseat/params.h"

namespace keyseat::nn::check {

// Sorts rows by expert with LibTorch's stable sort: short, slow and obviously right.
class SortingDispatcher final : public Dispatcher {
 public:
  DispatcherCapabilities capabilities() const override {
    DispatcherCapabilities capabilities;
    capabilities.host_counts = true;
    return capabilities;
  }
  int plans = 0;  // how often a plan was made

 private:
  struct Plan final : DispatchPlan {
    at::Tensor source_M, slot_TK;
    std::vector<int64_t> counts;
  };

  std::shared_ptr<DispatchPlan> plan_(const at::Tensor& topk_index_TK, int64_t experts,
                                      StepContext& /*context*/) override {
    ++plans;
    // Meta tensors have no values: everything goes to expert 0.
    const at::Tensor index_TK = topk_index_TK.is_meta()
                                    ? at::zeros(topk_index_TK.sizes(), at::kLong)
                                    : topk_index_TK.to(at::kCPU);
    const int64_t top_k = index_TK.size(1);
    auto plan = std::make_shared<Plan>();
    plan->counts.assign(static_cast<size_t>(experts), 0);
    std::vector<int64_t> source, slot(static_cast<size_t>(index_TK.numel()), -1);
    const int64_t* index = index_TK.contiguous().const_data_ptr<int64_t>();
    for (int64_t expert = 0; expert < experts; ++expert) {
      for (int64_t i = 0; i < index_TK.numel(); ++i) {
        if (index[i] != expert) continue;
        slot[static_cast<size_t>(i)] = static_cast<int64_t>(source.size());
        source.push_back(i / top_k);
        ++plan->counts[static_cast<size_t>(expert)];
      }
    }
    plan->source_M = at::tensor(source, at::kLong).to(topk_index_TK.device());
    plan->slot_TK =
        at::tensor(slot, at::kLong).reshape(index_TK.sizes()).to(topk_index_TK.device());
    return plan;
  }

  Dispatched dispatch_(const std::shared_ptr<DispatchPlan>& plan, const at::Tensor& x_TH,
                       const at::Tensor& weight_TK, StepContext& /*context*/) override {
    const auto& p = static_cast<const Plan&>(*plan);
    return {permute_rows(x_TH, p.source_M, p.slot_TK),
            permute_weights(weight_TK, p.slot_TK, p.source_M.size(0)),
            at::tensor(p.counts, at::kLong).to(x_TH.device()), p.counts};
  }

  at::Tensor combine_(const std::shared_ptr<DispatchPlan>& plan, const at::Tensor& rows_MH,
                      StepContext& /*context*/) override {
    const auto& p = static_cast<const Plan&>(*plan);
    return unpermute_rows(rows_MH, p.source_M, p.slot_TK);
  }
};

// One call of a unit with `tokens` real rows, `padding` rows behind them and these parameters.
// Regions run as they come. It must live until the backward of the call is over.
class CallContext {
 public:
  explicit CallContext(int64_t tokens, int64_t padding = 0, Kernels kernels = Kernels::kFast,
                       std::vector<ParamHandle> parameters = {}, Dispatcher* dispatcher = nullptr)
      : specs_(parameters.size()), params_(&specs_, std::move(parameters)), context_([&] {
          row_.counts.tokens = tokens;
          row_.counts.padding = padding;
          StepContext::State state;
          state.unit = "test.unit";
          state.plugin = "block/test";
          state.row = &row_;
          state.kernels = kernels;
          state.dispatcher = dispatcher != nullptr ? dispatcher : &sorting_;
          state.kept = &kept_;
          state.params = &params_;
          state.dispatcher_seconds = &dispatcher_seconds_;
          return state;
        }()) {}
  // On one rank of several.
  CallContext(int64_t tokens, int64_t padding, const Mesh& mesh, Comm& comm, Dispatcher& dispatcher,
              std::vector<ParamHandle> parameters = {})
      : CallContext(tokens, padding, Kernels::kFast, std::move(parameters), &dispatcher) {
    StepContext::State state = context_.state();
    state.mesh = &mesh;
    state.comm = &comm;
    context_ = StepContext(state);
  }
  CallContext(const CallContext&) = delete;
  StepContext& operator*() { return context_; }
  double dispatcher_seconds() const { return dispatcher_seconds_; }
  SortingDispatcher& sorting() { return sorting_; }

 private:
  RowFacts row_;
  std::vector<StepContext::Kept> kept_;
  std::vector<ParamSpec> specs_;
  Params params_;
  SortingDispatcher sorting_;
  double dispatcher_seconds_ = 0;
  StepContext context_;
};

}  // namespace keyseat::nn::check
