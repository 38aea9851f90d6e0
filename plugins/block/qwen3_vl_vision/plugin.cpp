#include "keyseat/plugin.h"

#include "qwen3_vl_vision.h"

KEYSEAT_PLUGIN(Block, keyseat_block_qwen3_vl_vision::Qwen3VlVision, "1.0.0", "Keyseat authors",
               "Apache-2.0", "Vision tower of Qwen3-VL and Qwen3-VL-MoE, with taps for deepstack.")
