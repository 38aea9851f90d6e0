// Naive interpolation of the position table.
#include "nn/naive.h"

namespace keyseat::nn::naive {

at::Tensor interpolate_positions(const ParamHandle& table_GGC, const PositionTaps& taps) {
  const at::Tensor& table = table_GGC.value();
  at::Tensor rows_4PC = table.index_select(0, taps.index_4P.flatten())
                            .view({4, taps.index_4P.size(1), table.size(1)});
  return rows_4PC.to(wide_type(table))
      .mul(taps.weight_4P.unsqueeze(-1))
      .sum(0)
      .to(table.scalar_type());
}

}  // namespace keyseat::nn::naive
