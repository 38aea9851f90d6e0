// Cutting a packed row into the shares of a (context, tensor) group. Legend: T row tokens, P
// patches, V visual tokens, N images.
#include "keyseat/row_share.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <numeric>

#include "runtime/own_rows.h"

namespace keyseat {
namespace {

constexpr size_t kShownSampleIds = 8;

int64_t sum_counts(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

[[noreturn]] void refuse_length(const RowFacts& facts, int64_t fixed_tokens) {
  const size_t shown = std::min(kShownSampleIds, facts.sample_ids.size());
  const std::vector<int64_t> ids(facts.sample_ids.begin(),
                                 facts.sample_ids.begin() + static_cast<std::ptrdiff_t>(shown));
  throw Error(Problem{
      Code::kC3Value,
      {},
      fmt::format("a row has {} tokens, rows of a fixed length have {}; its samples are {}{}",
                  facts.row_tokens(), fixed_tokens, fmt::join(ids, ", "),
                  shown < facts.sample_ids.size()
                      ? fmt::format(" and {} more", facts.sample_ids.size() - shown)
                      : ""),
      "a row is padded to the fixed length, never cut",
      "Raise the fixed length in the options of the strategy, or have the data source pack shorter "
      "rows."});
}

int64_t padded_length(const RowFacts& facts, int64_t ranks, int64_t fixed_tokens) {
  const int64_t tokens = facts.row_tokens();
  if (fixed_tokens > 0 && tokens > fixed_tokens) refuse_length(facts, fixed_tokens);
  const int64_t multiple = ranks > 1 ? 2 * ranks : 1;
  return (std::max(tokens, fixed_tokens) + multiple - 1) / multiple * multiple;
}

// Grows the tail segment, or begins one, as data::pack does: nothing attends to it, routes, counts
// or trains on it.
void pad_tail(Row& row, int64_t length) {
  RowFacts& facts = row.facts;
  const int64_t missing = length - facts.row_tokens();
  if (missing == 0) return;
  if (facts.counts.padding > 0) facts.cu_seqlens.pop_back();
  const auto tail_segment = static_cast<int64_t>(facts.cu_seqlens.size()) - 1;
  facts.cu_seqlens.push_back(length);
  facts.counts.padding += missing;
  const auto pad = [&](const char* name, int dim, int64_t value) {
    const at::Tensor& tensor = row.tensors.at(name);
    std::vector<int64_t> shape = tensor.sizes().vec();
    shape[static_cast<size_t>(dim)] = missing;
    row.tensors.set(name, at::cat({tensor, at::full(shape, value, tensor.options())}, dim));
  };
  pad("tokens", 0, 0);
  pad("labels", 0, -100);
  pad("segment_ids", 0, tail_segment);
  pad("position_ids", 1, 0);
  const std::vector<int32_t> cu_seqlens(facts.cu_seqlens.begin(), facts.cu_seqlens.end());
  row.tensors.set("cu_seqlens", at::tensor(cu_seqlens, row.tensors.at("cu_seqlens").options()));
}

void check_images(const RowFacts& facts, int64_t patches, int64_t visual_tokens) {
  const RowShare& share = facts.share;
  const int64_t made_patches = sum_counts(share.patch_count),
                made_visual = sum_counts(share.visual_count);
  if (made_patches == patches && made_visual == visual_tokens) return;
  throw Error(
      Problem{Code::kR4Contract,
              {},
              fmt::format("a row has {} patches and {} visual tokens, its grids make {} and {}",
                          patches, visual_tokens, made_patches, made_visual),
              "images are dealt out to ranks by their grids",
              "This is an error of the data plugin."});
}

// Attention segments of the tower.
std::vector<int64_t> frames_of(const std::vector<int64_t>& grid_thw) {
  std::vector<int64_t> frames{0};
  for (size_t i = 0; i + 2 < grid_thw.size(); i += 3) {
    for (int64_t t = 0; t < grid_thw[i]; ++t)
      frames.push_back(frames.back() + grid_thw[i + 1] * grid_thw[i + 2]);
  }
  return frames;
}

// Notes which images every context rank encodes, and keeps this one's.
void share_images(Row& row, const Mesh& mesh) {
  RowFacts& facts = row.facts;
  RowShare& share = facts.share;
  const int64_t patches = row.tensors.at("patches").size(0);
  const int64_t visual_tokens = row.tensors.at("visual_dst").size(0);
  const int64_t block = visual_tokens > 0 ? patches / visual_tokens : 0;  // patches of a token
  const std::vector<int64_t> first = deal_images(facts.grid_thw, mesh.degree(Axis::kContext));
  for (size_t rank = 0; rank + 1 < first.size(); ++rank) {
    int64_t rank_patches = 0;
    for (int64_t image = first[rank]; image < first[rank + 1]; ++image) {
      const int64_t* const grid = facts.grid_thw.data() + 3 * image;
      rank_patches += grid[0] * grid[1] * grid[2];
    }
    share.image_count.push_back(first[rank + 1] - first[rank]);
    share.patch_count.push_back(rank_patches);
    share.visual_count.push_back(block > 0 ? rank_patches / block : 0);
  }
  check_images(facts, patches, visual_tokens);
  if (mesh.degree(Axis::kContext) == 1) return;  // all of them are here: nothing is copied

  const RowRange own = own_images(DimSymbol::kN, share, mesh);
  const std::vector<int64_t>& all = facts.grid_thw;
  const std::vector<int64_t> grid_thw(all.begin() + 3 * own.begin, all.begin() + 3 * own.end);
  row.tensors.set("patches", copy_ranges(row.tensors.at("patches"), 0,
                                         {own_images(DimSymbol::kP, share, mesh)}));
  row.tensors.set("grid_thw", copy_ranges(row.tensors.at("grid_thw"), 0, {own}));
  facts.vision_cu_seqlens = frames_of(grid_thw);
  facts.grid_thw = grid_thw;
  facts.counts.images = own.end - own.begin;
  facts.counts.patches = row.tensors.at("patches").size(0);
  const RowRange own_visual = own_images(DimSymbol::kV, share, mesh);
  facts.counts.visual_tokens = own_visual.end - own_visual.begin;
}

// Which visual tokens lie in these rows of the packed row, and where among them.
void place_visual_tokens(Row& row, const std::vector<RowRange>& rows) {
  const at::Tensor dst_V = row.tensors.at("visual_dst").to(at::kCPU).contiguous();
  const int64_t* const dst = dst_V.const_data_ptr<int64_t>();
  std::vector<int64_t> own_dst;
  for (int64_t token = 0; token < dst_V.numel(); ++token) {
    int64_t passed = 0;
    for (const RowRange& range : rows) {
      if (range.begin <= dst[token] && dst[token] < range.end) {
        row.facts.share.own_visual.push_back(token);
        own_dst.push_back(passed + dst[token] - range.begin);
      }
      passed += range.end - range.begin;
    }
  }
  row.tensors.set("visual_dst", at::tensor(own_dst, row.tensors.at("visual_dst").options()));
}

void share_rows(Row& row, const Mesh& mesh) {
  RowFacts& facts = row.facts;
  facts.share.row_tokens = facts.row_tokens();
  const auto rows = own_rows(facts.share.row_tokens, Layout::kRows, mesh);
  const auto context_rows = own_rows(facts.share.row_tokens, Layout::kContextRows, mesh);
  place_visual_tokens(row, rows);
  const at::Tensor labels_T = copy_ranges(row.tensors.at("labels"), 0, rows);
  const int64_t real = facts.counts.tokens;
  facts.counts.tokens = 0;
  for (const RowRange& range : rows)
    facts.counts.tokens += std::clamp(real - range.begin, int64_t{0}, range.end - range.begin);
  facts.counts.padding = labels_T.size(0) - facts.counts.tokens;
  facts.counts.supervised = labels_T.ge(0).sum().item<int64_t>();
  for (const auto& [name, dim] : {std::pair("tokens", 0), std::pair("labels", 0),
                                  std::pair("segment_ids", 0), std::pair("position_ids", 1)})
    row.tensors.set(name, copy_ranges(row.tensors.at(name), dim, context_rows));
}

int64_t ranks_of_row(const Mesh& mesh) {
  return mesh.degree(Axis::kContext) * mesh.degree(Axis::kTensor);
}

}  // namespace

void pad_row(Row& row, const Mesh& mesh, int64_t fixed_tokens) {
  pad_tail(row, padded_length(row.facts, ranks_of_row(mesh), fixed_tokens));
}

Row share_row(Row row, const Mesh& mesh, int64_t fixed_tokens) {
  pad_row(row, mesh, fixed_tokens);
  if (ranks_of_row(mesh) == 1) return row;
  share_images(row, mesh);
  share_rows(row, mesh);
  return row;
}

}  // namespace keyseat
