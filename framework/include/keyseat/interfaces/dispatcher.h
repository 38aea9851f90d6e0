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

inline constexpr int kDispatcherAbi = 3;

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
  bool host_counts = false;             // gives host_tokens_per_expert (a host sync on a device)
  int64_t host_syncs = 0;               // per plan: how often the host waits for values
  bool equal_tokens = false;            // needs the same T on every rank
  bool supports_expert_tensor = false;  // an expert may be split over ranks (expert_tensor > 1)
  bool supports_capacity_pad = false;   // pads every block of an expert to the capacity
  bool needs_topology = false;          // uses ranks_per_node
  int64_t row_alignment = 1;            // rows of an expert are a multiple of it
};

// What a dispatcher knows before the first plan.
struct DispatcherFacts {
  int64_t experts = 0;  // of the whole model's MoE layers; layers may differ only if all are
                        // multiples of the degree
  int64_t top_k = 0;
  int64_t hidden = 0;
  bool capacity_pad = false;  // plans will ask for a capacity
};

// Bytes that one rank sends to ranks of its node and to ranks of others. Predictions under uniform
// routing are expectations, so they are fractional.
struct LinkTraffic {
  double intra = 0, inter = 0;
};

// One MoE layer of one micro-batch; every rank of the dispatch group has `tokens` row slots.
struct DispatcherWork {
  DispatcherFacts facts;
  int64_t tokens = 0;         // T
  int64_t element_bytes = 4;  // of the compute dtype
  int64_t capacity = 0;       // as given to plan()
  // What the routers of all ranks of the dispatch group chose (i64 [T, K] each, on the CPU), in the
  // order of mesh.group({kExpertTensor, kExpert}); empty: uniform routing.
  std::vector<at::Tensor> topk_index = {};
};

// What one rank sends. The forward is plan, dispatch, combine; the backward repeats no plan.
struct DispatcherTraffic {
  LinkTraffic plan, dispatch, combine, combine_backward, dispatch_backward;
  LinkTraffic total() const;
};

// (token, choice) pairs of real tokens since the last report, on this rank.
struct DispatcherReport {
  int64_t choices = 0;   // that the routers made
  int64_t capacity = 0;  // of these not sent: above the router's capacity
  int64_t overflow = 0;  // arrived at this rank's experts, but above the dispatcher's bound
};

class KEYSEAT_API Dispatcher {
 public:
  virtual ~Dispatcher();
  virtual DispatcherCapabilities capabilities() const = 0;
  // Rules of this dispatcher for a layout, before anything is allocated (optional).
  virtual Problems validate(const DispatcherFacts& facts, const Mesh& mesh) const;
  // The same with the rules that follow from capabilities(), all C4. What the core asks.
  Problems check_layout(const DispatcherFacts& facts, const Mesh& mesh) const;
  // What the rank of `mesh` sends for this work; nothing by default. The mesh is one without
  // problems.
  virtual DispatcherTraffic traffic(const DispatcherWork& work, const Mesh& mesh) const;
  // Counts of choices made and dropped in training since the last call, which it resets.
  DispatcherReport take_report();

  // topk_index_TK: i64 [T, K], -1 = not routed. capacity > 0: every block of rows that one rank
  // sends to one expert is filled up to this many with rows of zeros (capability
  // supports_capacity_pad). Call it through ctx.keep.
  std::shared_ptr<DispatchPlan> plan(const at::Tensor& topk_index_TK, int64_t experts,
                                     StepContext& context, int64_t capacity = 0);
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
  // With the capability supports_capacity_pad only; capacity > 0.
  virtual std::shared_ptr<DispatchPlan> plan_padded_(const at::Tensor& topk_index_TK,
                                                     int64_t experts, int64_t capacity,
                                                     StepContext& context);
  virtual Dispatched dispatch_(const std::shared_ptr<DispatchPlan>& plan, const at::Tensor& x_TH,
                               const at::Tensor& weight_TK, StepContext& context) = 0;
  virtual at::Tensor combine_(const std::shared_ptr<DispatchPlan>& plan, const at::Tensor& rows_MH,
                              StepContext& context) = 0;
  // A plan dropped this many rows because they exceed the dispatcher's bound.
  void report_overflow(int64_t rows) { report_.overflow += rows; }

 private:
  void count_choices(const at::Tensor& topk_index_TK, const StepContext& context);
  DispatcherReport report_;
};

}  // namespace keyseat
