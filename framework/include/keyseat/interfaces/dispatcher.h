// Kind `dispatcher`: moves tokens to experts and back.
//
// Contract (7-contracts section 3). Expert-parallel rank r owns experts r*e .. r*e+e-1. Collectives
// happen only inside plan, dispatch, combine and their backward, always, also for zero rows.
// nn::moe_layer is the only caller. dispatch and combine are differentiable. Plans hold what
// backward needs; nothing else is kept between layers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "keyseat/context.h"
#include "keyseat/options.h"
#include "keyseat/plugin.h"

namespace keyseat {

inline constexpr int kDispatcherAbi = 1;

class KEYSEAT_API DispatchPlan {
 public:
  virtual ~DispatchPlan();
};

struct Dispatched {
  at::Tensor rows_MH;  // sorted by local expert; M >= sum of counts, rows past it are never read
  at::Tensor
      row_weight_M;  // fp32; experts multiply the activation by it before the down projection
  at::Tensor tokens_per_expert_E;               // i64 [local experts], on the device
  std::vector<int64_t> host_tokens_per_expert;  // only with capability host_counts, else empty
};

struct DispatcherCapabilities {
  bool capture_safe = false;
  bool host_counts = false;   // gives host_tokens_per_expert (a host sync on a device)
  bool equal_tokens = false;  // needs the same T on every rank
  bool supports_expert_tensor = false;
  bool needs_topology = false;
  int64_t row_alignment = 1;
};

// What a dispatcher knows before the first plan.
struct DispatcherFacts {
  int64_t experts = 0;  // of the whole model's MoE layers; layers may differ only if all are
                        // multiples of the degree
  int64_t top_k = 0;
  int64_t hidden = 0;
};

class KEYSEAT_API Dispatcher {
 public:
  virtual ~Dispatcher();
  virtual DispatcherCapabilities capabilities() const = 0;
  // Rules of the layout, before anything is allocated (optional).
  virtual Problems validate(const DispatcherFacts& facts, const Mesh& mesh) const;

  // topk_index_TK: i64 [T, K], -1 = not routed. Call it through ctx.keep.
  std::shared_ptr<DispatchPlan> plan(const at::Tensor& topk_index_TK, int64_t experts,
                                     StepContext& context);
  // x_TH: [T, H] compute dtype; weight_TK: fp32 [T, K].
  Dispatched dispatch(const std::shared_ptr<DispatchPlan>& plan, const at::Tensor& x_TH,
                      const at::Tensor& weight_TK, StepContext& context);
  // rows_MH: as dispatched -> [T, H] in the rows' dtype: unweighted sum, fp32 accumulation, fixed
  // order.
  at::Tensor combine(const std::shared_ptr<DispatchPlan>& plan, const at::Tensor& rows_MH,
                     StepContext& context);

 protected:
  virtual std::shared_ptr<DispatchPlan> plan_(const at::Tensor& topk_index_TK, int64_t experts,
                                              StepContext& context) = 0;
  virtual Dispatched dispatch_(const std::shared_ptr<DispatchPlan>& plan, const at::Tensor& x_TH,
                               const at::Tensor& weight_TK, StepContext& context) = 0;
  virtual at::Tensor combine_(const std::shared_ptr<DispatchPlan>& plan, const at::Tensor& rows_MH,
                              StepContext& context) = 0;
};

}  // namespace keyseat
