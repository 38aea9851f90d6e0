// The rules that parameters and losses put on the degrees by which a strategy cuts a stage.
#pragma once

#include "keyseat/chain.h"
#include "keyseat/options.h"

namespace keyseat::sharding {

// Problems at the options `tensor`, `context` and `expert_tensor`, each once for units that are
// alike (C4): heads or a width that a degree does not divide, a degree that cuts nothing, a loss
// that every rank of a group would count, tied parameters that would lie differently. R4: a split
// that makes no sense.
Problems check_cuts(const Options& options, const MeshDegrees& degrees, const Chain& chain);

// What is cut along `split`: "8 heads", "width 28".
std::string split_text(const ParamSpec& param);

}  // namespace keyseat::sharding
