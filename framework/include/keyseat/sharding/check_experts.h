// The rule that routed experts put on a strategy's degree `expert`.
#pragma once

#include "keyseat/chain.h"
#include "keyseat/options.h"

namespace keyseat::sharding {

// Problems (C4) at the option `expert`: one per number of experts that the degree does not divide;
// a degree above 1 in a model without routed experts.
Problems check_experts(const Options& options, int64_t degree, const Chain& chain);

// Problems (C4) at the option `expert_tensor`: parameters whose width the degree does not divide,
// or which cannot be split; a degree above 1 in a model without routed experts.
Problems check_expert_tensor(const Options& options, int64_t degree, const Chain& chain);

}  // namespace keyseat::sharding
