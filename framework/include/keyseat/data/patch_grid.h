// A row of grid_thw: frame groups, patch rows, patch columns.
#pragma once

#include <cstdint>

namespace keyseat::data {

struct PatchGrid {
  int64_t t = 0;
  int64_t h = 0;
  int64_t w = 0;

  int64_t patches() const { return t * h * w; }
  bool operator==(const PatchGrid&) const = default;
};

}  // namespace keyseat::data
