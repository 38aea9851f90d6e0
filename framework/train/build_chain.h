// The chain of a configuration: its block plugins, in order.
#pragma once

#include "keyseat/chain.h"
#include "keyseat/config.h"
#include "keyseat/interfaces/recompute.h"
#include "keyseat/registry.h"

namespace keyseat::train {

// Throws Error with every problem of the blocks together. `mesh`: as for Chain::build.
Chain build_chain(const RunConfig& config, Registry& registry, const Mesh& mesh = {});

// What the policy's options say about units that the chain does not have.
Problems recompute_problems(const Recompute& recompute, const Chain& chain);

}  // namespace keyseat::train
