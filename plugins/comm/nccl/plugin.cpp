#include "keyseat/plugin.h"

#include "nccl.h"

KEYSEAT_PLUGIN(Comm, keyseat_comm_nccl::Nccl, "1.0.0", "Keyseat authors", "Apache-2.0",
               "GPU ranks of any number of hosts, through NCCL.")
