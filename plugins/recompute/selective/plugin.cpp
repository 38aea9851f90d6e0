#include "keyseat/plugin.h"

#include "selective.h"

KEYSEAT_PLUGIN(Recompute, keyseat_recompute_selective::Selective, "1.0.0", "Keyseat authors",
               "Apache-2.0",
               "Keeps only the inputs of chosen regions of a unit and runs them again in backward.")
