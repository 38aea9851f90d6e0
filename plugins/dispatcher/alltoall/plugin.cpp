#include "keyseat/plugin.h"

#include "alltoall.h"

KEYSEAT_PLUGIN(Dispatcher, keyseat_dispatcher_alltoall::AllToAll, "1.0.0", "Keyseat authors",
               "Apache-2.0", "Sends every row straight to the rank of its expert, once per choice.")
