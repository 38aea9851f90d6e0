#include "hybrid_ep.h"

#include <ATen/ops/full.h>

#include <cmath>

#include "keyseat/interfaces/comm.h"
#include "keyseat/mutation.h"
#include "keyseat/nn/exchange.h"
#include "route.h"
#include "tables.h"
#include "topology.h"

namespace keyseat_dispatcher_hybrid_ep {

using keyseat::Axis;
using keyseat::Code;
using keyseat::Option;
using keyseat::OptionLevel;
using keyseat::OptionType;
using keyseat::nn::begin_all_gather;
using keyseat::nn::begin_all_to_all;

namespace {

// What the tokens of this rank and of its peers need; two exchanges of bytes.
Maps exchange_maps(const Topology& topology, const Groups& groups, const at::Tensor& index_TK,
                   int64_t padded, int64_t experts, at::Device device) {
  Maps maps;
  maps.own_TE = dense_map(index_TK, padded, experts);
  maps.arriving_NTE = maps.own_TE;
  if (groups.between != nullptr) {
    const Counts each(static_cast<size_t>(topology.nodes), padded);
    maps.arriving_NTE =
        begin_all_gather(*groups.between, maps.own_TE.to(device), each).wait().to(at::kCPU);
  }
  if (groups.inside != nullptr) {
    const Counts each(static_cast<size_t>(topology.per_node), topology.nodes * padded);
    const at::Tensor columns = columns_by_rank(topology, maps.arriving_NTE).to(device);
    maps.local_RNTe = begin_all_to_all(*groups.inside, columns, each, each).wait().to(at::kCPU);
  }
  return maps;
}

}  // namespace

keyseat::OptionSchema HybridEp::options() {
  return {Option("mode", OptionType::kEnum)
              .choices({"blocking", "bounded"})
              .defaults_to("blocking")
              .doc("blocking: every buffer has exactly the rows that are routed. bounded: all "
                   "sizes follow from the number of tokens alone; what exceeds rows_factor is "
                   "dropped, counted and reported."),
          Option("rows_factor", OptionType::kFloat)
              .defaults_to(2.0)
              .range(0.01, 4096)
              .level(OptionLevel::kTuning)
              .doc("bounded: rows for the experts of a rank, as a multiple of what it gets under "
                   "balanced routing."),
          Option("unequal_tokens", OptionType::kEnum)
              .choices({"pad", "refuse"})
              .defaults_to("pad")
              .doc("Ranks with different numbers of row slots: pad the routing map to the largest, "
                   "or end the run.")};
}

keyseat::Problems HybridEp::validate(const keyseat::Options& options) {
  if (options.get_string("mode") == "bounded" || !options.given("rows_factor")) return {};
  return {options.problem(Code::kC4Combination, "rows_factor",
                          "rows_factor is given, but mode is blocking",
                          "only the bounded mode has a bound", "set mode = \"bounded\"")};
}

HybridEp::HybridEp(const keyseat::Options& options, const keyseat::PluginHost& /*host*/)
    : bounded_(options.get_string("mode") == "bounded"),
      rows_factor_(options.get_float("rows_factor")),
      refuse_unequal_(options.get_string("unequal_tokens") == "refuse") {}

keyseat::DispatcherCapabilities HybridEp::capabilities() const {
  keyseat::DispatcherCapabilities capabilities;
  capabilities.host_counts = true;
  capabilities.host_syncs = 3;  // the largest T, the maps of other nodes, the maps of this node
  capabilities.equal_tokens = refuse_unequal_;
  capabilities.supports_expert_tensor = true;
  capabilities.needs_topology = true;
  return capabilities;
}

keyseat::Problems HybridEp::validate(const keyseat::DispatcherFacts& /*facts*/,
                                     const keyseat::Mesh& mesh) const {
  return Topology::problems(mesh);
}

int64_t HybridEp::agree_on_tokens(keyseat::CommGroup& group, int64_t tokens,
                                  at::Device device) const {
  if (KEYSEAT_MUTATED("no agreement on T")) return tokens;
  const at::Tensor own = at::full({1}, tokens, at::TensorOptions(at::kLong).device(device));
  const Counts each(static_cast<size_t>(group.size()), 1);
  const at::Tensor all = begin_all_gather(group, own, each).wait().to(at::kCPU);
  const int64_t* data = all.const_data_ptr<int64_t>();
  const auto [least, most] = std::minmax_element(data, data + all.numel());
  if (refuse_unequal_ && *least != *most) {
    throw keyseat::Error(keyseat::Problem{
        Code::kR6Data,
        {},
        fmt::format("dispatcher/hybrid_ep: the ranks have between {} and {} row slots", *least,
                    *most),
        "unequal_tokens = \"refuse\" asks for the same number on every rank",
        "pad the rows of the data to one size, or set unequal_tokens = \"pad\""});
  }
  return *most;
}

std::shared_ptr<keyseat::DispatchPlan> HybridEp::plan_(const at::Tensor& topk_index_TK,
                                                       int64_t experts,
                                                       keyseat::StepContext& context) {
  keyseat::nn::check_choices(topk_index_TK, experts, context);
  const at::Device device = topk_index_TK.device();
  const keyseat::Mesh* mesh = context.state().mesh;
  const Topology topology = mesh == nullptr ? Topology() : Topology::of(*mesh);
  const int64_t top_k = topk_index_TK.size(1);
  const auto bound = [&](int64_t tokens) {
    const double balanced = static_cast<double>(tokens * top_k * topology.slices);
    const int64_t worst =
        topology.size() * tokens * std::min(top_k, experts / topology.expert_ranks());
    return std::min(worst, static_cast<int64_t>(std::ceil(rows_factor_ * balanced)));
  };
  if (topk_index_TK.is_meta()) {
    const int64_t tokens = topk_index_TK.size(0);
    return keyseat::nn::meta_plan(
        tokens, top_k, bounded_ ? bound(tokens) : topk_index_TK.numel() * topology.slices,
        experts / topology.expert_ranks());
  }
  keyseat::Comm* comm = context.state().comm;
  int64_t padded = topk_index_TK.size(0);
  Groups groups;
  if (topology.size() > 1) {
    padded = agree_on_tokens(comm->group(topology.ranks), padded, device);
    if (topology.nodes > 1) groups.between = &comm->group(topology.ranks_at_this_place());
    if (topology.per_node > 1) groups.inside = &comm->group(topology.ranks_of_this_node());
  }
  const at::Tensor index_TK = topk_index_TK.to(at::kCPU).contiguous();
  const Maps maps = exchange_maps(topology, groups, index_TK, padded, experts, device);
  Tables tables =
      make_tables(topology, index_TK, experts, maps, {bounded_, bounded_ ? bound(padded) : 0});
  if (context.training()) report_overflow(tables.overflow);
  Counts counts = tables.rows_of_expert;
  return std::make_shared<keyseat::nn::RoutePlan>(
      c10::make_intrusive<Route>(groups, topology, std::move(tables), experts, device),
      std::move(counts), device);
}

}  // namespace keyseat_dispatcher_hybrid_ep
