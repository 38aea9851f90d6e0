#include "keyseat/plugin.h"

#include "self.h"

KEYSEAT_PLUGIN(Comm, keyseat_comm_self::Self, "1.0.0", "Keyseat authors", "Apache-2.0",
               "The communicator of one rank: every collective is a copy.")
