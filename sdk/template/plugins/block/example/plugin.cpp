#include "keyseat/plugin.h"

#include "example.h"

KEYSEAT_PLUGIN(Block, keyseat_block_example::SkipProjector, "0.1.0", "Your name", "Apache-2.0",
               "Merges patches into visual tokens by a two-layer network beside a linear skip.")
