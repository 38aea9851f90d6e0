// The chain of a configuration: its block plugins, in order.
#pragma once

#include "keyseat/chain.h"
#include "keyseat/config.h"
#include "keyseat/registry.h"

namespace keyseat::train {

// Throws Error with every problem of the blocks together.
Chain build_chain(const RunConfig& config, Registry& registry);

}  // namespace keyseat::train
