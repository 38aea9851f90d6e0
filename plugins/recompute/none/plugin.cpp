#include "keyseat/plugin.h"

#include "none.h"

KEYSEAT_PLUGIN(
    Recompute, keyseat_recompute_none::None, "1.0.0", "Keyseat authors", "Apache-2.0",
    "Keeps every activation and runs nothing again; the oracle of all recompute policies.")
