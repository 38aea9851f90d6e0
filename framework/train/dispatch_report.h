// What routers and dispatcher dropped in a step, and what bends the routing of a model.
#pragma once

#include <string>

#include "keyseat/chain.h"
#include "keyseat/interfaces/comm.h"
#include "keyseat/interfaces/dispatcher.h"

namespace keyseat::train {

// The dispatcher's report since the last call, summed over all ranks.
DispatcherReport gather_report(Dispatcher& dispatcher, Comm& comm, int64_t world);

// "natural", or what the units say bends it, each once.
std::string routing_of(const Chain& chain);

// "dropped 1.2 % of choices above the capacity, 0.3 % above the bound"; empty where nothing was.
std::string dropped_text(const DispatcherReport& report);

}  // namespace keyseat::train
