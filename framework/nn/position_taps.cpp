// Taps of the bilinear interpolation of the position grid, in fp32 as transformers computes them.
#include <ATen/ops/empty.h>

#include "keyseat/nn/position_embedding.h"
#include "nn/patch_order.h"

namespace keyseat::nn {
namespace {

// The two grid lines around position `index` of `count`, and the weight of the upper one.
struct AxisTaps {
  AxisTaps(int64_t index, int64_t count, int64_t grid_side) {
    const float source = static_cast<float>(index) * static_cast<float>(grid_side - 1) /
                         static_cast<float>(std::max<int64_t>(count - 1, 1));
    line[0] = static_cast<int64_t>(source);
    line[1] = std::min(line[0] + 1, grid_side - 1);
    weight[1] = source - static_cast<float>(line[0]);
    weight[0] = 1.0f - weight[1];
  }
  int64_t line[2];
  float weight[2];
};

}  // namespace

PositionTaps position_taps(const std::vector<int64_t>& grid_thw, int64_t merge_size,
                           int64_t grid_side) {
  const int64_t patches = patch_count(grid_thw);
  PositionTaps taps{at::empty({4, patches}, at::kLong), at::empty({4, patches}, at::kFloat)};
  int64_t* index = taps.index_4P.mutable_data_ptr<int64_t>();
  float* weight = taps.weight_4P.mutable_data_ptr<float>();
  int64_t patch = 0;
  for_each_patch(grid_thw, merge_size, [&](int64_t y, int64_t x, int64_t h, int64_t w) {
    const AxisTaps rows(y, h, grid_side), columns(x, w, grid_side);
    for (int tap = 0; tap < 4; ++tap) {
      index[tap * patches + patch] = rows.line[tap / 2] * grid_side + columns.line[tap % 2];
      weight[tap * patches + patch] = rows.weight[tap / 2] * columns.weight[tap % 2];
    }
    ++patch;
  });
  return taps;
}

}  // namespace keyseat::nn
