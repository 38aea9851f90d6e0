// A region whose forward keeps only its inputs.
#pragma once

#include <vector>

#include "keyseat/context.h"

namespace keyseat_recompute_selective {

// fn(inputs), run without a graph now and again, with one, when its gradient is asked for. Results
// and gradients are bitwise those of a plain call.
std::vector<at::Tensor> replayed_region(keyseat::Region region, const keyseat::RegionFunction& fn,
                                        std::vector<at::Tensor> inputs,
                                        keyseat::StepContext& context);

}  // namespace keyseat_recompute_selective
