// The share of a packed row that a rank of a (context, tensor) group works on.
//
// The packed row is padded at its end to a multiple of 2 * context * tensor rows (its tail is one
// segment, which counts as padding). By row index it is cut into 2 * context chunks; context rank r
// has chunks r and 2 * context - 1 - r, one behind the other (zig-zag: causal attention is equal
// work). With sequence parallel, tensor rank t has the t-th of `tensor` equal slices of these.
// Images are dealt out to context ranks as neighbours, balanced by patches. Pure arithmetic over
// the row's facts: every rank finds the shares of all.
#pragma once

#include <cstdint>
#include <vector>

#include "keyseat/batch.h"
#include "keyseat/mesh.h"

namespace keyseat {

class Comm;

// Rows [begin, end) of the packed row.
struct RowRange {
  int64_t begin = 0, end = 0;
};

// The two chunks of a context rank, ascending; `row_tokens`: of the padded row.
KEYSEAT_API std::vector<RowRange> context_chunks(int64_t row_tokens, int64_t context,
                                                 int64_t context_rank);

// Lengthens the tail of a row to a multiple of 2 * context * tensor tokens; with `fixed_tokens` to
// that length at least (a longer row is C3). Nothing changes where it has the length already.
KEYSEAT_API void pad_row(Row& row, const Mesh& mesh, int64_t fixed_tokens = 0);

// What the rank of `mesh` has of `row`, padded first, in the layouts of batch_tensors(). The row
// itself where the group is one rank.
KEYSEAT_API Row share_row(Row row, const Mesh& mesh, int64_t fixed_tokens = 0);

// The whole tensor out of the shares of all ranks along `dim`, and back. `layout`: of the share;
// `rows`: what the dimension counts. The same calls on every rank of the group.
// whole_of: no gradient is recorded; own_share: rows of this rank.
KEYSEAT_API at::Tensor whole_of(const at::Tensor& share, Layout layout, DimSymbol rows, int dim,
                                const RowFacts& facts, const Mesh& mesh, Comm& comm);
KEYSEAT_API at::Tensor own_share(const at::Tensor& whole, Layout layout, DimSymbol rows, int dim,
                                 const RowFacts& facts, const Mesh& mesh);
// A whole gradient with this rank's rows in place and zeros elsewhere: the transpose of own_share.
KEYSEAT_API at::Tensor spread_share(const at::Tensor& share, Layout layout, DimSymbol rows, int dim,
                                    const RowFacts& facts, const Mesh& mesh);

}  // namespace keyseat
