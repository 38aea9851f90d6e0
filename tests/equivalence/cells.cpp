#include "tests/equivalence/cells.h"

#include <fmt/format.h>

namespace keyseat::test {

const DispatcherRow kLocal{"local", "local", 1};
const std::vector<DispatcherRow> kDispatchers{{"allgather", "allgather", 1},
                                              {"alltoall", "alltoall", 1},
                                              {"hybrid_ep, 1 node", "hybrid_ep", 1},
                                              {"hybrid_ep, 2 nodes", "hybrid_ep", 2}};

std::string ok_row(const std::string& name, const LayoutDifference& difference) {
  return fmt::format("| {} | OK | {:.0e} | {:.0e} | {:.0e} | {:.0e} |\n", name, difference.loss,
                     difference.gradient, difference.norm, difference.change);
}

void choose_lowest_experts(const Chain& chain, Strategy& strategy) {
  for (int unit = 0; unit < chain.size(); ++unit) {
    const auto& params = chain.units()[unit].unit->spec().params;
    for (int param = 0; param < static_cast<int>(params.size()); ++param) {
      if (params[param].role != ParamRole::kRouter) continue;
      strategy.write_master(unit, param, strategy.read_master(unit, param).mul(0));
    }
  }
}

}  // namespace keyseat::test
