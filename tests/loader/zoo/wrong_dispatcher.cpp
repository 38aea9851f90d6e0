// A dispatcher with one fault at a time, for `keyseat check`: what conformance is there to find.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include "keyseat/interfaces/dispatcher.h"
#include "keyseat/nn/moe.h"

namespace keyseat_dispatcher_wrong_dispatcher {

using namespace keyseat;

class Wrong final : public Dispatcher {
 public:
  static OptionSchema options() {
    return {Option("fault", OptionType::kEnum)
                .defaults_to(std::string("none"))
                .choices({"none", "weights", "counts", "lost_row", "no_backward", "accepts_all",
                          "stdout", "crash", "hang"})
                .doc("What is wrong.")};
  }
  Wrong(const Options& options, const PluginHost&) : fault_(options.get_string("fault")) {}
  DispatcherCapabilities capabilities() const override { return {}; }

 private:
  struct Plan final : DispatchPlan {
    at::Tensor source_M, slot_TK, counts_E;
  };

  std::shared_ptr<DispatchPlan> plan_(const at::Tensor& topk_index_TK, int64_t experts,
                                      StepContext&) override {
    if (fault_ == "crash") std::abort();
    while (fault_ == "hang") std::this_thread::sleep_for(std::chrono::seconds(1));
    if (fault_ == "stdout") std::puts("a plugin that talks to the wrong stream");
    const at::Tensor expert_M = topk_index_TK.reshape({-1});
    const bool bad =
        !expert_M.is_meta() && expert_M.lt(-1).logical_or(expert_M.ge(experts)).any().item<bool>();
    if (bad && fault_ != "accepts_all") {
      throw Error(Problem{Code::kR4Contract, {}, "no such expert", "", ""});
    }
    const at::Tensor key_M = expert_M.masked_fill(expert_M.lt(0), experts).clamp_max(experts);
    const at::Tensor order_M = at::argsort(key_M, /*stable=*/true, 0, false);
    auto plan = std::make_shared<Plan>();
    plan->source_M = order_M.div(topk_index_TK.size(1), "floor");
    plan->slot_TK = at::empty_like(order_M)
                        .scatter(0, order_M, at::arange(order_M.size(0), order_M.options()))
                        .masked_fill(expert_M.lt(0), -1)
                        .view(topk_index_TK.sizes());
    plan->counts_E = at::zeros({experts + 1}, order_M.options())
                         .scatter_add(0, key_M, at::ones_like(key_M))
                         .narrow(0, 0, experts);
    if (fault_ == "counts") plan->counts_E = plan->counts_E.flip(0);
    if (fault_ == "lost_row" && topk_index_TK.size(0) > 0) {
      plan->slot_TK = plan->slot_TK.clone();
      plan->slot_TK[0][0] = -1;
    }
    return plan;
  }

  Dispatched dispatch_(const std::shared_ptr<DispatchPlan>& plan, const at::Tensor& x_TH,
                       const at::Tensor& weight_TK, StepContext&) override {
    const auto& p = static_cast<const Plan&>(*plan);
    at::Tensor rows_MH = nn::permute_rows(x_TH, p.source_M, p.slot_TK);
    if (fault_ == "no_backward") rows_MH = rows_MH.detach();
    at::Tensor weight_M = nn::permute_weights(weight_TK, p.slot_TK, p.source_M.size(0));
    if (fault_ == "weights") weight_M = weight_M * weight_M;
    return {rows_MH, weight_M, p.counts_E, {}};
  }

  at::Tensor combine_(const std::shared_ptr<DispatchPlan>& plan, const at::Tensor& rows_MH,
                      StepContext&) override {
    const auto& p = static_cast<const Plan&>(*plan);
    return nn::unpermute_rows(rows_MH, p.source_M, p.slot_TK);
  }

  std::string fault_;
};

}  // namespace keyseat_dispatcher_wrong_dispatcher

KEYSEAT_PLUGIN(Dispatcher, keyseat_dispatcher_wrong_dispatcher::Wrong, "1.0.0", "Keyseat authors",
               "Apache-2.0", "One fault at a time.")
