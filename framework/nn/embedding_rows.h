// What embeddings of whole and of split tables share. Legend: T rows, V vocabulary, H hidden.
#pragma once

#include <ATen/core/Tensor.h>

namespace keyseat::nn {

// R4 where an id (on the CPU) has no row in an embedding of `vocabulary` rows.
void check_ids(const at::Tensor& ids_T, int64_t vocabulary);

// table_VH[ids_T] += dy_TH.
void add_into_rows(const at::Tensor& table_VH, const at::Tensor& ids_T, const at::Tensor& dy_TH);

}  // namespace keyseat::nn
