#include "keyseat/plugin.h"

#include "shm.h"

KEYSEAT_PLUGIN(Comm, keyseat_comm_shm::Shm, "1.0.0", "Keyseat authors", "Apache-2.0",
               "CPU ranks of one host, through shared memory.")
