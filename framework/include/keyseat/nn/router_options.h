// The options by which a block lets a run bend its routing, declared once for all blocks with a
// router. They depend on the layout by definition: a run with them is not comparable with one
// without, nor with one of another layout, and says so on every line.
#pragma once

#include <string>

#include "keyseat/nn/router.h"
#include "keyseat/options.h"

namespace keyseat::nn {

// router_capacity_factor, router_capacity, router_drop_policy, router_forced_balance.
KEYSEAT_API OptionSchema router_option_schema();
KEYSEAT_API Problems validate_router_options(const Options& options);
// Fills in what these options say; top_k and renormalise are the block's.
KEYSEAT_API void read_router_options(const Options& options, RouterOptions& router);
// "forced balance", "capacity 1.25, drop by probability"; empty: natural routing.
KEYSEAT_API std::string routing_label(const RouterOptions& router);

}  // namespace keyseat::nn
