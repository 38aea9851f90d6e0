#include "keyseat/plugin.h"

#include "conversations.h"

KEYSEAT_PLUGIN(Data, keyseat_data_conversations::Conversations, "1.0.0", "Keyseat authors",
               "Apache-2.0", "Chat samples from a JSONL file, with images as files beside it.")
