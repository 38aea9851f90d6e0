// Kind `strategy`: anchors and defaults.
#include "keyseat/interfaces/strategy.h"

namespace keyseat {

UnitEvents::~UnitEvents() = default;
Strategy::~Strategy() = default;

void Strategy::pad(std::vector<Row>& /*rows*/) const {}

std::vector<int64_t> Strategy::unit_stages(const StrategyFacts& /*facts*/,
                                           const Chain& chain) const {
  return std::vector<int64_t>(static_cast<size_t>(chain.size()), 0);
}

}  // namespace keyseat
