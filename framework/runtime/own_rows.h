// Which rows and images of a packed row a rank of a (context, tensor) group holds.
#pragma once

#include <vector>

#include "keyseat/row_share.h"

namespace keyseat {

// Rows of the packed row that the rank of `mesh` has in one of the layouts of T, ascending. The
// length is a multiple of 2 * context * tensor.
std::vector<RowRange> own_rows(int64_t row_tokens, Layout layout, const Mesh& mesh);

// By context rank, and the end: the first of the images [N * 3] that it encodes. An image goes to
// the rank in whose equal share of all patches its middle lies.
std::vector<int64_t> deal_images(const std::vector<int64_t>& grid_thw, int64_t context);

// Of P, V or N of the packed row: what belongs to the images that this context rank encodes.
RowRange own_images(DimSymbol rows, const RowShare& share, const Mesh& mesh);

// By context rank: P, V or N of the images that it encodes.
const std::vector<int64_t>& image_counts(DimSymbol rows, const RowShare& share);

// Rows of all context ranks, rank by rank as an all-gather along dim 0 yields them, in the order of
// the packed row.
at::Tensor in_row_order(const at::Tensor& by_rank, int64_t context);

// These ranges of `dim`, one behind another, in memory of their own.
at::Tensor copy_ranges(const at::Tensor& tensor, int dim, const std::vector<RowRange>& ranges);

}  // namespace keyseat
