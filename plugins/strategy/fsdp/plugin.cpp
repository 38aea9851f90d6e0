#include "keyseat/plugin.h"

#include "fsdp.h"

KEYSEAT_PLUGIN(Strategy, keyseat_strategy_fsdp::Fsdp, "1.0.0", "Keyseat authors", "Apache-2.0",
               "Parameters, gradients and optimizer state sharded over the ranks, unit by unit.")
