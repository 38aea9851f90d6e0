#include "keyseat/plugin.h"

#include "three_d.h"

KEYSEAT_PLUGIN(Strategy, keyseat_strategy_three_d::ThreeD, "1.0.0", "Keyseat authors", "Apache-2.0",
               "The chain cut into pipeline stages; rows, parameters, experts and optimizer state "
               "over the ranks of each.")
