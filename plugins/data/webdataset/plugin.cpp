#include "keyseat/plugin.h"

#include "webdataset.h"

KEYSEAT_PLUGIN(
    Data, keyseat_data_webdataset::Webdataset, "1.0.0", "Keyseat authors", "Apache-2.0",
    "Chat samples with images from tar shards: KEY.json beside the image files it names.")
