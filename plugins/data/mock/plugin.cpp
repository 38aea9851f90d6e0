#include "keyseat/plugin.h"

#include "mock.h"

KEYSEAT_PLUGIN(Data, keyseat_data_mock::Mock, "1.0.0", "Keyseat authors", "Apache-2.0",
               "Random tokens and pixels for bring-up; never a performance measurement.")
