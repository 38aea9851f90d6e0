// A dispatcher with one fault at a time, for `keyseat check`: what conformance is there to find.
// Without a fault it is right on any number of ranks: each gathers all rows and keeps those of its
// own experts.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "keyseat/interfaces/comm.h"
#include "keyseat/interfaces/dispatcher.h"
#include "keyseat/mesh.h"
#include "keyseat/nn/moe.h"

namespace keyseat_dispatcher_wrong_dispatcher {

using namespace keyseat;

// The expert-parallel ranks of a call; `group` is null where there is one.
struct Peers {
  CommGroup* group = nullptr;
  int64_t size = 1, rank = 0;
  std::vector<int64_t> tokens;  // of every rank
};

std::vector<int64_t> with_rows(const at::Tensor& like, int64_t rows) {
  std::vector<int64_t> sizes = like.sizes().vec();
  sizes[0] = rows;
  return sizes;
}

at::Tensor gather(const Peers& peers, const at::Tensor& own) {
  const int64_t all = std::accumulate(peers.tokens.begin(), peers.tokens.end(), int64_t{0});
  const at::Tensor output = at::empty(with_rows(own, all), own.options());
  peers.group->all_gather(output, own.contiguous(), peers.tokens)->wait();
  return output;
}

at::Tensor scatter(const Peers& peers, const at::Tensor& all) {
  const int64_t own = peers.tokens[static_cast<size_t>(peers.rank)];
  const at::Tensor output = at::empty(with_rows(all, own), all.options());
  peers.group->reduce_scatter(output, all.contiguous(), peers.tokens)->wait();
  return output;
}

// gather or scatter; the backward of each is the other.
struct Exchange : torch::autograd::Function<Exchange> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const Peers* peers, bool gathers) {
    context->saved_data["peers"] = reinterpret_cast<int64_t>(peers);
    context->saved_data["gathers"] = gathers;
    return gathers ? gather(*peers, x) : scatter(*peers, x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto* peers = reinterpret_cast<const Peers*>(context->saved_data["peers"].toInt());
    const bool gathers = context->saved_data["gathers"].toBool();
    return {gathers ? scatter(*peers, gradients[0]) : gather(*peers, gradients[0]), {}, {}};
  }
};

class Wrong final : public Dispatcher {
 public:
  static OptionSchema options() {
    return {Option("fault", OptionType::kEnum)
                .defaults_to(std::string("none"))
                .choices({"none", "weights", "counts", "lost_row", "no_backward", "no_sum",
                          "accepts_all", "no_sum", "stdout", "crash", "hang"})
                .doc("What is wrong.")};
  }
  Wrong(const Options& options, const PluginHost&) : fault_(options.get_string("fault")) {}
  DispatcherCapabilities capabilities() const override { return {}; }

 private:
  struct Plan final : DispatchPlan {
    at::Tensor source_M, slot_TK, counts_E;
    std::shared_ptr<Peers> peers;
  };

  // Plans live until the backward of their layer is over, and so do these.
  std::shared_ptr<Peers> peers_of(StepContext& context, int64_t tokens) {
    auto peers = std::make_shared<Peers>();
    if (context.state().mesh == nullptr || context.mesh().degree(Axis::kExpert) == 1) return peers;
    peers->group = &context.state().comm->group(context.mesh().group({Axis::kExpert}));
    peers->size = peers->group->size();
    peers->rank = peers->group->rank();
    peers->tokens.assign(static_cast<size_t>(peers->size), 1);
    const at::Tensor all = gather(*peers, at::full({1}, tokens, at::kLong));
    for (int64_t i = 0; i < peers->size; ++i) {
      peers->tokens[static_cast<size_t>(i)] = all[i].item<int64_t>();
    }
    return peers;
  }

  std::shared_ptr<DispatchPlan> plan_(const at::Tensor& own_index_TK, int64_t all_experts,
                                      StepContext& context) override {
    if (fault_ == "crash") std::abort();
    while (fault_ == "hang") std::this_thread::sleep_for(std::chrono::seconds(1));
    if (fault_ == "stdout") std::puts("a plugin that talks to the wrong stream");
    const bool bad =
        !own_index_TK.is_meta() &&
        own_index_TK.lt(-1).logical_or(own_index_TK.ge(all_experts)).any().item<bool>();
    if (bad && fault_ != "accepts_all") {
      throw Error(Problem{Code::kR4Contract, {}, "no such expert", "", ""});
    }
    const auto peers = peers_of(context, own_index_TK.size(0));
    const at::Tensor topk_index_TK =
        peers->group != nullptr ? gather(*peers, own_index_TK) : own_index_TK;
    // Only this rank's experts, counted from 0.
    const int64_t experts = all_experts / peers->size;
    const at::Tensor number_M = topk_index_TK.reshape({-1}) - peers->rank * experts;
    const at::Tensor expert_M =
        number_M.masked_fill(number_M.lt(0), -1).masked_fill(number_M.ge(experts), -1);
    const at::Tensor key_M = expert_M.masked_fill(expert_M.lt(0), experts);
    const at::Tensor order_M = at::argsort(key_M, /*stable=*/true, 0, false);
    auto plan = std::make_shared<Plan>();
    plan->peers = peers;
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
    const bool many = p.peers->group != nullptr;
    const at::Tensor x = many ? Exchange::apply(x_TH, p.peers.get(), true) : x_TH;
    const at::Tensor weight = many ? Exchange::apply(weight_TK, p.peers.get(), true) : weight_TK;
    at::Tensor rows_MH = nn::permute_rows(x, p.source_M, p.slot_TK);
    if (fault_ == "no_backward") rows_MH = rows_MH.detach();
    at::Tensor weight_M = nn::permute_weights(weight, p.slot_TK, p.source_M.size(0));
    if (fault_ == "weights") weight_M = weight_M * weight_M;
    return {rows_MH, weight_M, p.counts_E, {}};
  }

  at::Tensor combine_(const std::shared_ptr<DispatchPlan>& plan, const at::Tensor& rows_MH,
                      StepContext&) override {
    const auto& p = static_cast<const Plan&>(*plan);
    const at::Tensor y = nn::unpermute_rows(rows_MH, p.source_M, p.slot_TK);
    if (p.peers->group == nullptr) return y;
    if (fault_ == "no_sum") {
      const auto& tokens = p.peers->tokens;
      const auto own = tokens.begin() + p.peers->rank;
      return y.narrow(0, std::accumulate(tokens.begin(), own, int64_t{0}), *own).clone();
    }
    return Exchange::apply(y, p.peers.get(), false);
  }

  std::string fault_;
};

}  // namespace keyseat_dispatcher_wrong_dispatcher

KEYSEAT_PLUGIN(Dispatcher, keyseat_dispatcher_wrong_dispatcher::Wrong, "1.0.0", "Keyseat authors",
               "Apache-2.0", "One fault at a time.")
