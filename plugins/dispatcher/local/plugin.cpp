#include "keyseat/plugin.h"

#include "local.h"

KEYSEAT_PLUGIN(Dispatcher, keyseat_dispatcher_local::Local, "1.0.0", "Keyseat authors",
               "Apache-2.0", "All experts in this process; the oracle of the other dispatchers.")
