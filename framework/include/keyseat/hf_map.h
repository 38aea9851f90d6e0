// How a block reads itself out of a Hugging Face config.json. Declarative, so that the core knows
// no plugin by name.
#pragma once

#include <string>
#include <vector>

#include "keyseat/options.h"

namespace keyseat {

// One option of the block and where its value stands in config.json.
struct HfOption {
  std::string option;
  std::vector<std::string>
      paths;  // dotted, tried in order: both spellings ("text_config.num_local_experts", ...)
  OptionValue otherwise;  // where no path is present; monostate: the option keeps its own default
};

// A key that must have one of the given values (as JSON text) or be absent:
// "text_config.hidden_act" in {"\"silu\""}.
struct HfRequirement {
  std::string path;
  std::vector<std::string> allowed;
  std::string why;
};

// One model_type that the block serves.
struct HfModel {
  std::string model_type;  // top-level model_type of config.json
  std::string block_name;  // name of the block in the chain: "vision"
  int order = 0;           // blocks are chained by this number
  std::vector<HfOption> options;
  std::vector<HfRequirement> requirements;
};

}  // namespace keyseat
