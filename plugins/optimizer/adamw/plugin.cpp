#include "keyseat/plugin.h"

#include "adamw.h"

KEYSEAT_PLUGIN(Optimizer, keyseat_optimizer_adamw::AdamW, "1.0.0", "Keyseat authors", "Apache-2.0",
               "AdamW with decoupled weight decay, in one pass over the flat shards.")
