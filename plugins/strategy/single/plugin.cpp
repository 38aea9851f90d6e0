#include "keyseat/plugin.h"

#include "single.h"

KEYSEAT_PLUGIN(Strategy, keyseat_strategy_single::Single, "1.0.0", "Keyseat authors", "Apache-2.0",
               "The whole model on one rank; the oracle of all strategies.")
