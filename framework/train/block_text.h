// Blocks in messages about two of them.
#pragma once

#include <fmt/format.h>

#include <string>

#include "errors/position.h"
#include "keyseat/chain.h"

namespace keyseat {

// "block vision (block/qwen3_vl_vision at run.toml:14:1)"
inline std::string block_text(const NamedBlock& block) {
  const std::string where = position_text(block.where);
  return fmt::format("block {} ({}{}{})", block.name, block.plugin, where.empty() ? "" : " at ",
                     where);
}

}  // namespace keyseat
