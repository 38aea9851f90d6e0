// Naive interpolation of the position table.
#include "nn/naive.h"

namespace keyseat::nn::naive {

at::Tensor interpolate_positions(const ParamHandle& table_GGC, const PositionTaps& taps) {
  const at::Tensor& table = table_GGC.value();
  const int64_t patches = taps.index_4P.size(1), width = table.size(1);
  at::Tensor row_index = taps.index_4P.reshape({4 * patches, 1}).expand({4 * patches, width});
  at::Tensor rows_4PC = table.gather(0, row_index).view({4, patches, width});
  return rows_4PC.to(wide_type(table))
      .mul(taps.weight_4P.unsqueeze(-1))
      .sum(0)
      .to(table.scalar_type());
}

}  // namespace keyseat::nn::naive
