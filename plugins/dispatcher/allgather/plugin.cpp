#include "keyseat/plugin.h"

#include "allgather.h"

KEYSEAT_PLUGIN(Dispatcher, keyseat_dispatcher_allgather::AllGather, "1.0.0", "Keyseat authors",
               "Apache-2.0", "Gives every rank all tokens; each keeps the rows of its experts.")
