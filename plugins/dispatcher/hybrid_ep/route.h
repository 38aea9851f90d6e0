// The way of the rows through the three stages of tables.h, and back.
#pragma once

#include "keyseat/nn/row_route.h"
#include "tables.h"

namespace keyseat_dispatcher_hybrid_ep {

// The ranks that rows travel between; null where there is nobody else.
struct Groups {
  keyseat::CommGroup* between = nullptr;  // equal places of all nodes
  keyseat::CommGroup* inside = nullptr;   // the ranks of this node
};

class Route final : public keyseat::nn::RowRoute {
 public:
  Route(Groups groups, const Topology& topology, Tables tables, int64_t experts, at::Device device);
  keyseat::nn::Weighted send(const keyseat::nn::Weighted& tokens) const override;
  keyseat::nn::Weighted bring_back(const keyseat::nn::Weighted& rows) const override;

 private:
  Groups groups_;
  Tables tables_;
  int64_t node_experts_, local_experts_;
};

}  // namespace keyseat_dispatcher_hybrid_ep
