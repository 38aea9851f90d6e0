#include "keyseat/plugin.h"

#include "qwen3_moe.h"

KEYSEAT_PLUGIN(Block, keyseat_block_qwen3_moe::Qwen3Moe, "1.0.0", "Keyseat authors", "Apache-2.0",
               "Decoder of Qwen3-MoE, Qwen3-VL-MoE and their dense siblings, with head and losses.")
