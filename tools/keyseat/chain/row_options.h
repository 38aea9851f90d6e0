// --tokens and --visual-tokens of the commands that run a model on meta tensors.
#pragma once

#include <CLI/CLI.hpp>

#include "tools/keyseat/chain/chain_facts.h"

namespace keyseat::tool::chain {

// `needs`: a flag that they make sense with only, or null.
inline void add_row_options(CLI::App& app, RowShape& row, CLI::Option* needs = nullptr) {
  constexpr int64_t kMostTokens = int64_t{1} << 24;
  CLI::Option* const options[] = {
      app.add_option("--tokens", row.tokens, "Tokens of the row, visual ones included (4096)")
          ->check(CLI::Range(int64_t{1}, kMostTokens)),
      app.add_option("--visual-tokens", row.visual_tokens, "Of these, tokens of one image (0)")
          ->check(CLI::Range(int64_t{0}, kMostTokens))};
  for (CLI::Option* option : options) {
    if (needs != nullptr) option->needs(needs);
  }
}

}  // namespace keyseat::tool::chain
