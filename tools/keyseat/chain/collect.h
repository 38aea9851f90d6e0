// Builds the chain of a configuration on meta tensors and collects what it says.
#pragma once

#include "keyseat/config.h"
#include "keyseat/registry.h"
#include "tools/keyseat/chain/chain_facts.h"

namespace keyseat::tool::chain {

// Throws Error where the model cannot be built, the row does not fit it, or its dry run fails.
ChainFacts collect(const RunConfig& config, Registry& registry, RowShape row);

}  // namespace keyseat::tool::chain
