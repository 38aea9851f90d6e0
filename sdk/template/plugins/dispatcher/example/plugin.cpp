#include "keyseat/plugin.h"

#include "example.h"

KEYSEAT_PLUGIN(Dispatcher, keyseat_dispatcher_example::SortingDispatcher, "0.1.0", "Your name",
               "Apache-2.0", "Experts in this process, their rows found by one stable sort.")
