#include "keyseat/plugin.h"

#include "gloo.h"

KEYSEAT_PLUGIN(Comm, keyseat_comm_gloo::Gloo, "1.0.0", "Keyseat authors", "Apache-2.0",
               "CPU ranks of any number of hosts, through LibTorch's Gloo over TCP.")
