#include "keyseat/plugin.h"

#include "qwen3_vl_projector.h"

KEYSEAT_PLUGIN(Block, keyseat_block_qwen3_vl_projector::Qwen3VlProjector, "1.0.0",
               "Keyseat authors", "Apache-2.0",
               "Final and deepstack mergers of Qwen3-VL, from vision features to visual tokens.")
