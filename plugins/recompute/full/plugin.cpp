#include "keyseat/plugin.h"

#include "full.h"

KEYSEAT_PLUGIN(Recompute, keyseat_recompute_full::Full, "1.0.0", "Keyseat authors", "Apache-2.0",
               "Keeps only the inputs of every unit and runs the unit again before its backward.")
