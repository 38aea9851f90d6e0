// Bilinear interpolation of a learned G x G grid of position embeddings (align_corners), 4-models
// section 1. Legend: P patches, G grid side, C vision hidden.
#pragma once

#include <vector>

#include "keyseat/context.h"
#include "keyseat/params.h"

namespace keyseat::nn {

struct PositionTaps {
  at::Tensor index_4P;   // i64 [4, P]: rows of the table
  at::Tensor weight_4P;  // fp32 [4, P]
};

// Patches in merge-block order, repeated for every frame. grid_thw: [N * 3] on the host.
KEYSEAT_API PositionTaps position_taps(const std::vector<int64_t>& grid_thw, int64_t merge_size,
                                       int64_t grid_side);

// sum over taps of weight * table[index] -> [P, C] in the table's dtype; gradient into the sink.
KEYSEAT_API at::Tensor interpolate_positions(const ParamHandle& table_GGC, const PositionTaps& taps,
                                             Kernels kernels);

}  // namespace keyseat::nn
