#define KEYSEAT_MUTATIONS

#include "tests/equivalence/mutated_fsdp.h"

#include "keyseat/mutation.h"
#include "plugins/strategy/fsdp/fsdp.cpp"
#include "plugins/strategy/fsdp/fsdp_state.cpp"
#include "plugins/strategy/fsdp/gather_schedule.cpp"
#include "plugins/strategy/fsdp/gradient_reducer.cpp"
#include "plugins/strategy/fsdp/settings.cpp"
#include "plugins/strategy/fsdp/slots.cpp"
#include "plugins/strategy/fsdp/trace.cpp"
#include "sharding/bucket.cpp"

namespace keyseat::test {

std::shared_ptr<Strategy> make_mutated_fsdp(const Options& options) {
  return std::make_shared<keyseat_strategy_fsdp::Fsdp>(options, PluginHost{});
}

}  // namespace keyseat::test
