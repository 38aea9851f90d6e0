// A Hugging Face config.json as blocks of a model, by what the block plugins say in hf_models().
#pragma once

#include <string>
#include <vector>

#include "keyseat/config.h"
#include "keyseat/hf_map.h"

namespace keyseat {

// What one block plugin serves.
struct HfPlugin {
  std::string plugin;  // name of the block plugin
  std::vector<HfModel> models;
};

struct HfBlocks {
  std::string model_type;
  std::vector<GivenBlock> blocks;  // in chain order; complete only without problems
  Problems problems;
};

// `json` is the text of the file, `file` its name for messages. The blocks are those of every
// plugin that serves the file's model_type. Problems: bad JSON or no model_type (R6), a model_type
// that no plugin serves (C2), two plugins for one block (P7), a value that a block does not build
// (C4). Values are not checked against schemas: resolve_config() does that with every other rule.
KEYSEAT_API HfBlocks blocks_from_hf(const std::string& json, const std::string& file,
                                    const std::vector<HfPlugin>& plugins);

}  // namespace keyseat
