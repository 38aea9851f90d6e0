// Between shares of a tensor and the whole. Legend: T row tokens, V visual tokens.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <numeric>

#include "keyseat/interfaces/comm.h"
#include "runtime/own_rows.h"

namespace keyseat {
namespace {

bool has_shares(Layout layout, DimSymbol rows, const Mesh& mesh) {
  const bool has_rows = rows == DimSymbol::kT || rows == DimSymbol::kP || rows == DimSymbol::kV ||
                        rows == DimSymbol::kN;
  return has_rows && !mesh.split_axes(layout).empty();
}

// Visual tokens that lie in own rows are no range: they are named one by one.
bool is_scattered(Layout layout, DimSymbol rows) {
  return rows == DimSymbol::kV && layout != Layout::kImages;
}

// Where this rank's rows stand in the whole.
std::vector<RowRange> ranges_of(Layout layout, DimSymbol rows, const RowFacts& facts,
                                const Mesh& mesh) {
  if (layout == Layout::kImages) return {own_images(rows, facts.share, mesh)};
  return own_rows(facts.share.row_tokens, layout, mesh);
}

at::Tensor visual_index(const at::Tensor& like, const RowFacts& facts) {
  const at::Tensor index = at::tensor(facts.share.own_visual, at::kLong);
  if (!like.is_cuda()) return index.to(like.device());
  // From ordinary memory the host would wait for all that the device has still to do.
  return index.pin_memory().to(like.device(), /*non_blocking=*/true);
}

int64_t whole_size(DimSymbol rows, const RowFacts& facts) {
  if (rows == DimSymbol::kT) return facts.share.row_tokens;
  const std::vector<int64_t>& counts = image_counts(rows, facts.share);
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// Shares laid side by side along dim 0, in the order of ranks.
at::Tensor gather_shares(const at::Tensor& share, const std::vector<int64_t>& counts, Layout layout,
                         const Mesh& mesh, Comm& comm) {
  std::vector<int64_t> shape = share.sizes().vec();
  shape[0] = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  at::Tensor all = at::empty(shape, share.options());
  if (share.is_meta()) return all;
  comm.group(mesh.group(mesh.split_axes(layout))).all_gather(all, share, counts)->wait();
  return all;
}

}  // namespace

at::Tensor whole_of(const at::Tensor& share, Layout layout, DimSymbol rows, int dim,
                    const RowFacts& facts, const Mesh& mesh, Comm& comm) {
  if (!has_shares(layout, rows, mesh)) return share;
  const at::NoGradGuard no_grad;
  if (is_scattered(layout, rows)) {
    const at::Tensor whole = spread_share(share, layout, rows, dim, facts, mesh);
    if (!whole.is_meta()) {
      comm.group(mesh.group(mesh.split_axes(layout))).all_reduce(whole, ReduceOp::kSum)->wait();
    }
    return whole;
  }
  const at::Tensor sent = share.movedim(dim, 0).contiguous();
  if (layout == Layout::kImages)
    return gather_shares(sent, image_counts(rows, facts.share), layout, mesh, comm).movedim(0, dim);
  const std::vector<int64_t> counts(mesh.group(mesh.split_axes(layout)).size(), sent.size(0));
  const at::Tensor by_rank = gather_shares(sent, counts, layout, mesh, comm);
  return in_row_order(by_rank, mesh.degree(Axis::kContext)).movedim(0, dim);
}

at::Tensor own_share(const at::Tensor& whole, Layout layout, DimSymbol rows, int dim,
                     const RowFacts& facts, const Mesh& mesh) {
  if (!has_shares(layout, rows, mesh)) return whole;
  if (is_scattered(layout, rows)) {  // index_select has no form for meta tensors
    return whole.movedim(dim, 0).index({visual_index(whole, facts)}).movedim(0, dim);
  }
  return copy_ranges(whole, dim, ranges_of(layout, rows, facts, mesh));
}

at::Tensor spread_share(const at::Tensor& share, Layout layout, DimSymbol rows, int dim,
                        const RowFacts& facts, const Mesh& mesh) {
  if (!has_shares(layout, rows, mesh)) return share;
  std::vector<int64_t> shape = share.sizes().vec();
  shape[static_cast<size_t>(dim)] = whole_size(rows, facts);
  const at::Tensor whole = at::zeros(shape, share.options());
  if (is_scattered(layout, rows)) return whole.index_copy_(dim, visual_index(share, facts), share);
  int64_t passed = 0;
  for (const RowRange& range : ranges_of(layout, rows, facts, mesh)) {
    const int64_t size = range.end - range.begin;
    whole.narrow(dim, range.begin, size).copy_(share.narrow(dim, passed, size));
    passed += size;
  }
  return whole;
}

}  // namespace keyseat
