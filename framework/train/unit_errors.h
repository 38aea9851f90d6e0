// Errors of a unit's own code, told with the unit and the plugin it comes from.
#pragma once

#include "keyseat/chain.h"

namespace keyseat {

// "unit decoder.layers.3 (block/qwen3_moe)"
std::string unit_label(const Chain& chain, int index);
const std::string& plugin_of(const Chain& chain, int index);

// To be called inside a catch block: passes an Error on, turns anything else into one: R3 where
// memory ran out, else R4 with LibTorch's first lines.
[[noreturn]] void rethrow_from_unit(const Chain& chain, int index, const char* phase);

// R4 where an output of the unit is a parameter or a view of one.
void check_parameters_stay(const Chain& chain, int index, const Params& params,
                           const std::vector<at::Tensor>& outputs);

}  // namespace keyseat
