#include "topology.h"

#include <fmt/format.h>

namespace keyseat_dispatcher_hybrid_ep {

using keyseat::Axis;

std::vector<int64_t> Topology::ranks_of_this_node() const {
  const auto first = ranks.begin() + node * per_node;
  return {first, first + per_node};
}

std::vector<int64_t> Topology::ranks_at_this_place() const {
  std::vector<int64_t> peers;
  for (int64_t n = 0; n < nodes; ++n)
    peers.push_back(ranks[static_cast<size_t>(n * per_node + local)]);
  return peers;
}

Topology Topology::of(const keyseat::Mesh& mesh) {
  Topology topology;
  topology.ranks = mesh.group({Axis::kExpertTensor, Axis::kExpert});
  const auto size = static_cast<int64_t>(topology.ranks.size());
  topology.slices = mesh.degree(Axis::kExpertTensor);
  topology.per_node = std::min(size, mesh.ranks_per_node());
  topology.nodes = size / topology.per_node;
  const int64_t place =
      std::find(topology.ranks.begin(), topology.ranks.end(), mesh.rank()) - topology.ranks.begin();
  topology.node = place / topology.per_node;
  topology.local = place % topology.per_node;
  return topology;
}

keyseat::Problems Topology::problems(const keyseat::Mesh& mesh) {
  const int64_t expert = mesh.degree(Axis::kExpert), slices = mesh.degree(Axis::kExpertTensor);
  const int64_t size = expert * slices, per_node = mesh.ranks_per_node();
  const std::string group =
      slices == 1 ? fmt::format("expert degree {}", expert)
                  : fmt::format("expert {} x expert_tensor {} = {} ranks", expert, slices, size);
  keyseat::Problem problem;
  problem.code = keyseat::Code::kC4Combination;
  if (per_node > 0 && size % per_node != 0 && per_node % size != 0) {
    problem.what = fmt::format(
        "nodes of {} ranks and the {} of dispatcher/hybrid_ep do not divide "
        "each other",
        per_node, group);
    problem.why = "every node of an exchange holds the same number of its ranks";
    problem.remedy = "change run.ranks_per_node or the strategy's option expert";
    return {problem};
  }
  if (size > per_node && per_node % slices != 0) {
    problem.what =
        fmt::format("expert_tensor {} does not divide the {} ranks of a node", slices, per_node);
    problem.why = "dispatcher/hybrid_ep keeps the slices of an expert on one node";
    problem.remedy = "change run.ranks_per_node or the strategy's option expert_tensor";
    return {problem};
  }
  return {};
}

}  // namespace keyseat_dispatcher_hybrid_ep
