#define KEYSEAT_MUTATIONS

#include "tests/equivalence/mutated_three_d.h"
#include "keyseat/mutation.h"
#include "plugins/strategy/three_d/balance.cpp"
#include "plugins/strategy/three_d/crossings.cpp"
#include "plugins/strategy/three_d/gradient_sums.cpp"
#include "plugins/strategy/three_d/order.cpp"
#include "plugins/strategy/three_d/resident_values.cpp"
#include "plugins/strategy/three_d/settings.cpp"
#include "plugins/strategy/three_d/stage_links.cpp"
#include "plugins/strategy/three_d/stages.cpp"
#include "plugins/strategy/three_d/three_d.cpp"
#include "plugins/strategy/three_d/three_d_state.cpp"
#include "plugins/strategy/three_d/tied_stages.cpp"

namespace keyseat::test {

std::shared_ptr<Strategy> make_mutated_three_d(const Options& options) {
  return std::make_shared<keyseat_strategy_three_d::ThreeD>(options, PluginHost{});
}

}  // namespace keyseat::test
