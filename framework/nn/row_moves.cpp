// Legend: T tokens, K choices, M rows, H hidden.
#include "keyseat/nn/row_moves.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "nn/kernels/row_sum.h"
#include "nn/naive.h"
#include "nn/simd.h"

namespace keyseat::nn {
namespace {

// For other devices and fp64: LibTorch's ops. Its index_select has no meta form, but only shapes
// matter there.
at::Tensor gather_rows_composed(const at::Tensor& x_TH, const at::Tensor& source_M) {
  if (x_TH.size(0) == 0 || x_TH.is_meta())
    return at::zeros({source_M.size(0), x_TH.size(1)}, x_TH.options());
  at::Tensor rows_MH = x_TH.index_select(0, source_M.clamp_min(0));
  return rows_MH.masked_fill_(source_M.lt(0).unsqueeze(1), 0);
}

at::Tensor sum_rows_composed(const at::Tensor& rows_MH, const at::Tensor& slot_TK) {
  at::Tensor sum_TH = at::zeros({slot_TK.size(0), rows_MH.size(1)},
                                rows_MH.options().dtype(naive::wide_type(rows_MH)));
  if (rows_MH.size(0) == 0 || rows_MH.is_meta()) return sum_TH.to(rows_MH.scalar_type());
  for (int64_t k = 0; k < slot_TK.size(1); ++k) {
    const at::Tensor slot_T = slot_TK.select(1, k);
    sum_TH.add_(
        rows_MH.index_select(0, slot_T.clamp_min(0)).masked_fill_(slot_T.lt(0).unsqueeze(1), 0));
  }
  return sum_TH.to(rows_MH.scalar_type());
}

}  // namespace

at::Tensor gather_rows(const at::Tensor& x_TH, const at::Tensor& source_M) {
  if (!x_TH.is_cpu()) return gather_rows_composed(x_TH, source_M);
  const at::Tensor input_TH = x_TH.contiguous();
  const at::Tensor index_M = source_M.contiguous();
  at::Tensor rows_MH = at::empty({index_M.size(0), input_TH.size(1)}, input_TH.options());
  const auto bytes = static_cast<size_t>(input_TH.size(1) * input_TH.element_size());
  const auto* input = static_cast<const std::byte*>(input_TH.const_data_ptr());
  auto* output = static_cast<std::byte*>(rows_MH.mutable_data_ptr());
  const int64_t* source = index_M.const_data_ptr<int64_t>();
  at::parallel_for(
      0, index_M.size(0), row_grain(input_TH.size(1)), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          std::byte* target = output + static_cast<size_t>(row) * bytes;
          if (source[row] < 0) {
            std::memset(target, 0, bytes);
          } else {
            std::memcpy(target, input + static_cast<size_t>(source[row]) * bytes, bytes);
          }
        }
      });
  return rows_MH;
}

at::Tensor sum_rows(const at::Tensor& rows_MH, const at::Tensor& slot_TK) {
  if (!simd_takes(rows_MH)) return sum_rows_composed(rows_MH, slot_TK);
  const at::Tensor input_MH = rows_MH.contiguous();
  const at::Tensor index_TK = slot_TK.contiguous();
  const int64_t tokens = index_TK.size(0), choices = index_TK.size(1), width = input_MH.size(1);
  at::Tensor sum_TH = at::empty({tokens, width}, input_MH.options());
  const int64_t* slot = index_TK.const_data_ptr<int64_t>();
  with_element(input_MH, [&]<typename T>(T) {
    at::parallel_for(0, tokens, row_grain(width), [&](int64_t begin, int64_t end) {
      kernels::run(kernels::RowSum<T>{.rows = read<T>(input_MH),
                                      .slot = slot + begin * choices,
                                      .y = written<T>(sum_TH) + begin * width,
                                      .tokens = end - begin,
                                      .choices = choices,
                                      .width = width});
    });
  });
  return sum_TH;
}

at::Tensor scatter_weights(const at::Tensor& weight_TK, const at::Tensor& slot_TK, int64_t rows) {
  // One row more takes the weights of choices that go nowhere.
  at::Tensor weight = at::zeros({rows + 1}, weight_TK.options());
  const at::Tensor slot = slot_TK.reshape({-1});
  weight.index_put_({slot.masked_fill(slot.lt(0), rows)}, weight_TK.reshape({-1}));
  return weight.narrow(0, 0, rows);
}

at::Tensor collect_weights(const at::Tensor& weight_M, const at::Tensor& slot_TK) {
  if (weight_M.size(0) == 0 || weight_M.is_meta())
    return at::zeros(slot_TK.sizes(), weight_M.options());
  const at::Tensor slot = slot_TK.reshape({-1});
  return weight_M.index_select(0, slot.clamp_min(0))
      .masked_fill_(slot.lt(0), 0)
      .reshape(slot_TK.sizes());
}

}  // namespace keyseat::nn
