#include "keyseat/plugin.h"

#include "hybrid_ep.h"

KEYSEAT_PLUGIN(Dispatcher, keyseat_dispatcher_hybrid_ep::HybridEp, "1.0.0", "Keyseat authors",
               "Apache-2.0",
               "Crosses nodes once per token and node, then distributes inside the node.")
