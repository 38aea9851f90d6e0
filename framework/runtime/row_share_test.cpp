// Shares of packed rows: together they are the row. Legend: T row tokens, V visual tokens, N
// images.
#include "keyseat/row_share.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <doctest/doctest.h>

#include "keyseat/data/packing.h"
#include "runtime/mesh_fixture.h"
#include "runtime/own_rows.h"

namespace keyseat::row_share_test {
namespace {

using testing::mesh_of;
using testing::RowGroup;

constexpr int64_t kMerge = 2, kElements = 3;

const std::vector<RowGroup> kGroups{{1, 2, false}, {1, 2, true},  {2, 1, false}, {2, 2, false},
                                    {2, 2, true},  {3, 1, false}, {3, 2, true},  {4, 1, false},
                                    {1, 4, true},  {4, 4, true}};

// A sample of `text` tokens behind images of these grids, each patch with its number as value.
struct Part {
  int64_t text = 0;
  std::vector<std::array<int64_t, 3>> grids = {};
};

Row row_of(const std::vector<Part>& samples, int64_t pad_to = 0) {
  std::vector<Sample> made;
  int64_t next_token = 1;
  double next_patch = 0;
  for (const Part& shape : samples) {
    Sample sample;
    sample.id = 100 + static_cast<int64_t>(made.size());
    std::vector<at::Tensor> patches;
    for (const auto& grid : shape.grids) {
      const int64_t count = grid[0] * grid[1] * grid[2];
      sample.grid_thw.insert(sample.grid_thw.end(), grid.begin(), grid.end());
      for (int64_t v = 0; v < count / (kMerge * kMerge); ++v) {
        sample.tokens.push_back(next_token++);
        sample.token_type.push_back(1);
      }
      for (int64_t p = 0; p < count; ++p) patches.push_back(at::full({kElements}, next_patch++));
    }
    for (int64_t t = 0; t < shape.text; ++t) {
      sample.tokens.push_back(next_token++);
      sample.token_type.push_back(0);
    }
    for (size_t i = 0; i < sample.tokens.size(); ++i)
      sample.labels.push_back(i % 3 == 0 ? -100 : static_cast<int64_t>(i));
    sample.patches = patches.empty() ? at::empty({0, kElements}) : at::stack(patches);
    made.push_back(std::move(sample));
  }
  data::PackOptions options;
  options.input.merge_size = kMerge;
  options.input.patch_size = 1;
  options.input.temporal_patch_size = 1;
  options.input.position_rule = "plain";
  options.pad_to = pad_to;
  std::vector<const Sample*> pointers;
  for (const Sample& sample : made) pointers.push_back(&sample);
  return data::pack(pointers, options);
}

const std::vector<std::vector<Part>> kRows{
    {},
    {{1}},
    {{5}},
    {{17}},
    {{3, {{1, 2, 2}}}, {4}},
    {{0, {{1, 4, 4}}}, {1}, {6, {{1, 2, 2}, {1, 2, 6}}}},
    {{2, {{3, 4, 2}, {1, 2, 2}}}, {2, {{1, 2, 2}, {2, 2, 2}, {1, 6, 2}}}},  // videos among images
    {{0, {{1, 2, 2}, {1, 2, 2}, {1, 2, 2}, {1, 2, 2}, {1, 2, 2}, {1, 2, 2}}}},
};

void check_equal(const char* what, const at::Tensor& a, const at::Tensor& b) {
  INFO(what);
  CHECK(a.sizes() == b.sizes());
  CHECK(at::equal(a, b));
}

// What packing makes of the same samples with that much padding.
Row padded(const std::vector<Part>& samples, int64_t multiple, int64_t at_least = 0) {
  const int64_t tokens = std::max(row_of(samples).facts.row_tokens(), at_least);
  return row_of(samples, (tokens + multiple - 1) / multiple * multiple);
}

// What the ranks of a group hold together.
struct Covered {
  at::Tensor tokens_T;          // how many of them hold a row
  std::vector<int64_t> visual;  // visual tokens
  int64_t real = 0, supervised = 0, patches = 0;
};

// The share of one rank against the whole row.
void check_share(const Row& share, const Row& whole, const Mesh& mesh, Covered& covered) {
  const RowFacts &facts = share.facts, &all = whole.facts;
  CHECK(facts.share.row_tokens == all.row_tokens());
  CHECK(facts.cu_seqlens == all.cu_seqlens);
  CHECK(facts.sample_ids == all.sample_ids);
  CHECK(facts.counts.samples == all.counts.samples);
  CHECK(facts.shared_tokens == all.shared_tokens);
  check_equal("cu_seqlens", share.tensors.at("cu_seqlens"), whole.tensors.at("cu_seqlens"));
  check_equal("logit_rows", share.tensors.at("logit_rows"), whole.tensors.at("logit_rows"));
  const auto own = [&](const char* name, Layout layout, DimSymbol rows, int dim) {
    check_equal(name, share.tensors.at(name),
                own_share(whole.tensors.at(name), layout, rows, dim, facts, mesh));
  };
  for (const char* name : {"tokens", "labels", "segment_ids"})
    own(name, Layout::kContextRows, DimSymbol::kT, 0);
  own("position_ids", Layout::kContextRows, DimSymbol::kT, 1);
  own("patches", Layout::kImages, DimSymbol::kP, 0);
  own("grid_thw", Layout::kImages, DimSymbol::kN, 0);

  // Own rows: real ones first.
  const at::Tensor rows_T = own_share(at::arange(all.row_tokens(), at::kLong), Layout::kRows,
                                      DimSymbol::kT, 0, facts, mesh);
  CHECK(rows_T.size(0) == facts.row_tokens());
  CHECK(rows_T.size(0) * static_cast<int64_t>(mesh.group(mesh.split_axes(Layout::kRows)).size()) ==
        all.row_tokens());
  for (int64_t i = 0; i < rows_T.size(0); ++i) {
    if (i > 0) CHECK(rows_T[i].item<int64_t>() > rows_T[i - 1].item<int64_t>());
    CHECK((rows_T[i].item<int64_t>() < all.counts.tokens) == (i < facts.counts.tokens));
  }
  covered.tokens_T.index_add_(0, rows_T, at::full({rows_T.size(0)}, int64_t{1}, at::kLong));
  covered.real += facts.counts.tokens;
  covered.supervised += facts.counts.supervised;

  // Own visual tokens: the same ones, at their places.
  const at::Tensor dst_V = share.tensors.at("visual_dst");
  REQUIRE(dst_V.numel() == static_cast<int64_t>(facts.share.own_visual.size()));
  for (int64_t v = 0; v < dst_V.numel(); ++v) {
    const int64_t token = facts.share.own_visual[static_cast<size_t>(v)];
    CHECK(rows_T[dst_V[v].item<int64_t>()].item<int64_t>() ==
          whole.tensors.at("visual_dst")[token].item<int64_t>());
    covered.visual.push_back(token);
  }

  // Own images: neighbours, with the sizes that every rank knows.
  const auto context = static_cast<size_t>(mesh.coordinate(Axis::kContext));
  CHECK(facts.counts.images == facts.share.image_count[context]);
  CHECK(facts.counts.patches == facts.share.patch_count[context]);
  CHECK(facts.counts.visual_tokens == facts.share.visual_count[context]);
  CHECK(facts.counts.patches == share.tensors.at("patches").size(0));
  CHECK(facts.counts.visual_tokens * kMerge * kMerge == facts.counts.patches);
  CHECK(facts.vision_cu_seqlens.front() == 0);
  CHECK(facts.vision_cu_seqlens.back() == facts.counts.patches);
  const at::Tensor grid_N3 = share.tensors.at("grid_thw");
  CHECK(facts.grid_thw ==
        std::vector<int64_t>(grid_N3.const_data_ptr<int64_t>(),
                             grid_N3.const_data_ptr<int64_t>() + grid_N3.numel()));
  size_t frame = 0;
  for (size_t i = 0; i + 2 < facts.grid_thw.size(); i += 3) {
    for (int64_t t = 0; t < facts.grid_thw[i]; ++t, ++frame)
      CHECK(facts.vision_cu_seqlens[frame + 1] - facts.vision_cu_seqlens[frame] ==
            facts.grid_thw[i + 1] * facts.grid_thw[i + 2]);
  }
  CHECK(frame + 1 == facts.vision_cu_seqlens.size());
  covered.patches += facts.counts.patches;
}

}  // namespace

TEST_CASE("row share: the shares of all ranks together are the row") {
  for (const RowGroup& group : kGroups) {
    const int64_t ranks = group.context * group.tensor;
    for (size_t r = 0; r < kRows.size(); ++r) {
      CAPTURE(group.context);
      CAPTURE(group.tensor);
      CAPTURE(group.sequence_parallel);
      CAPTURE(r);
      const Row whole = padded(kRows[r], 2 * ranks);
      CHECK(whole.facts.row_tokens() % (2 * ranks) == 0);
      Covered covered;
      covered.tokens_T = at::zeros({whole.facts.row_tokens()}, at::kLong);
      for (int64_t rank = 0; rank < ranks; ++rank) {
        CAPTURE(rank);
        const Mesh mesh = mesh_of(group, rank);
        check_share(share_row(row_of(kRows[r]), mesh), whole, mesh, covered);
      }
      // Without sequence parallel every tensor rank holds the same rows; images it always does.
      const int64_t copies = group.sequence_parallel ? 1 : group.tensor;
      check_equal("rows", covered.tokens_T, at::full_like(covered.tokens_T, copies));
      CHECK(covered.real == copies * whole.facts.counts.tokens);
      CHECK(covered.supervised == copies * whole.facts.counts.supervised);
      CHECK(covered.patches == group.tensor * whole.facts.counts.patches);
      std::sort(covered.visual.begin(), covered.visual.end());
      std::vector<int64_t> expected;
      for (int64_t v = 0; v < whole.facts.counts.visual_tokens; ++v)
        expected.insert(expected.end(), static_cast<size_t>(copies), v);
      CHECK(covered.visual == expected);
    }
  }
}

TEST_CASE("row share: own_share and spread_share put every row where it was") {
  for (const RowGroup& group : kGroups) {
    const int64_t ranks = group.context * group.tensor;
    const Row whole = padded(kRows[6], 2 * ranks);
    const RowCounts& counts = whole.facts.counts;
    const std::pair<DimSymbol, int64_t> sizes[] = {{DimSymbol::kT, whole.facts.row_tokens()},
                                                   {DimSymbol::kV, counts.visual_tokens},
                                                   {DimSymbol::kP, counts.patches},
                                                   {DimSymbol::kN, counts.images}};
    for (const auto& [rows, size] : sizes) {
      for (const Layout layout : {Layout::kRows, Layout::kContextRows, Layout::kImages}) {
        const bool of_images = layout == Layout::kImages;
        if (rows == DimSymbol::kT && of_images) continue;
        if (rows == DimSymbol::kV && layout == Layout::kContextRows) continue;
        if ((rows == DimSymbol::kP || rows == DimSymbol::kN) && !of_images) continue;
        for (const int dim : {0, 1}) {
          at::Tensor x = at::arange(2 * size, at::kFloat).view({size, 2}).add(1);
          if (dim == 1) x = x.t();
          at::Tensor sum = at::zeros_like(x);
          for (int64_t rank = 0; rank < ranks; ++rank) {
            const Mesh mesh = mesh_of(group, rank);
            const RowFacts facts = share_row(row_of(kRows[6]), mesh).facts;
            const at::Tensor share = own_share(x, layout, rows, dim, facts, mesh);
            sum += spread_share(share, layout, rows, dim, facts, mesh);
          }
          const auto parts = static_cast<int64_t>(
              mesh_of(group, 0).group(mesh_of(group, 0).split_axes(layout)).size());
          check_equal("sum", sum, x.mul(ranks / parts));
        }
      }
    }
  }
}

TEST_CASE("row share: context ranks have equal work in causal attention") {
  const int64_t tokens = 48;
  for (int64_t context : {2, 3, 4}) {
    std::set<int64_t> work;
    for (int64_t rank = 0; rank < context; ++rank) {
      int64_t pairs = 0;
      for (const RowRange& chunk : context_chunks(tokens, context, rank))
        for (int64_t row = chunk.begin; row < chunk.end; ++row) pairs += row + 1;
      work.insert(pairs);
    }
    CHECK(work.size() == 1);
  }
}

TEST_CASE("row share: images are dealt out as neighbours, balanced by patches") {
  const auto dealt = [](const std::vector<int64_t>& sizes, int64_t context) {
    std::vector<int64_t> grid_thw;
    for (int64_t size : sizes) grid_thw.insert(grid_thw.end(), {1, 1, size});
    return deal_images(grid_thw, context);
  };
  CHECK(dealt({}, 3) == std::vector<int64_t>{0, 0, 0, 0});
  CHECK(dealt({4, 4, 4, 4}, 2) == std::vector<int64_t>{0, 2, 4});
  CHECK(dealt({1, 1, 1, 1, 12}, 2) == std::vector<int64_t>{0, 4, 5});
  CHECK(dealt({12, 1, 1}, 2) == std::vector<int64_t>{0, 1, 3});
  CHECK(dealt({5}, 4) == std::vector<int64_t>{0, 0, 0, 1, 1});
  CHECK(dealt({2, 2, 2, 2, 2, 2, 2, 2}, 4) == std::vector<int64_t>{0, 2, 4, 6, 8});
  // No rank has more than its part and one image.
  const std::vector<int64_t> sizes{7, 1, 9, 2, 2, 30, 4, 4, 1, 12};
  const std::vector<int64_t> first = dealt(sizes, 4);
  for (size_t rank = 0; rank < 4; ++rank) {
    const int64_t patches =
        std::accumulate(sizes.begin() + first[rank], sizes.begin() + first[rank + 1], int64_t{0});
    CHECK(patches <= 72 / 4 + 30);
  }
}

TEST_CASE("row share: one rank keeps its row, a fixed length pads it") {
  const Row row = share_row(row_of(kRows[4]), Mesh());
  CHECK(row.facts.row_tokens() == 8);
  CHECK(row.facts.share.visual_count.empty());
  const Row fixed = share_row(row_of(kRows[4]), Mesh(), 11), expected = row_of(kRows[4], 11);
  CHECK(fixed.facts.counts.padding == 3);
  CHECK(fixed.facts.cu_seqlens == expected.facts.cu_seqlens);
  for (const BatchTensor& tensor : batch_tensors())
    check_equal(tensor.name, fixed.tensors.at(tensor.name), expected.tensors.at(tensor.name));
}

TEST_CASE("row share: a tail that is there grows, as if packed so") {
  const Mesh mesh = mesh_of({2, 1, false}, 1);
  const Row grown = share_row(row_of(kRows[5], 19), mesh, 24);
  const Row expected = share_row(row_of(kRows[5], 24), mesh);
  CHECK(grown.facts.cu_seqlens == expected.facts.cu_seqlens);
  CHECK(grown.facts.counts.padding == expected.facts.counts.padding);
  for (const BatchTensor& tensor : batch_tensors())
    check_equal(tensor.name, grown.tensors.at(tensor.name), expected.tensors.at(tensor.name));
}

TEST_CASE("row share: a row that was padded before has the same shares") {
  const Mesh mesh = mesh_of({2, 2, true}, 1);
  for (const int64_t fixed : {0, 24}) {
    Row padded = row_of(kRows[5]);
    pad_row(padded, mesh, fixed);
    const int64_t length = padded.facts.row_tokens();
    CHECK(length % 8 == 0);
    CHECK(length >= fixed);
    pad_row(padded, mesh, fixed);
    CHECK(padded.facts.row_tokens() == length);
    const Row expected = share_row(row_of(kRows[5]), mesh, fixed);
    const Row found = share_row(std::move(padded), mesh, fixed);
    CHECK(found.facts.counts.padding == expected.facts.counts.padding);
    CHECK(found.facts.cu_seqlens == expected.facts.cu_seqlens);
    for (const auto& [name, tensor] : expected.tensors)
      CHECK(at::equal(found.tensors.at(name), tensor));
  }
}

TEST_CASE("row share: a row longer than the fixed length is refused with its samples") {
  const auto refused = [](const Mesh& mesh) {
    try {
      share_row(row_of(kRows[5]), mesh, 8);
    } catch (const Error& error) {
      CHECK(error.problems().at(0).code == Code::kC3Value);
      return std::string(error.what());
    }
    return std::string();
  };
  for (const Mesh& mesh : {Mesh(), mesh_of({2, 2, true}, 3)}) {
    const std::string text = refused(mesh);
    INFO(text);
    CHECK(text.find("a row has 15 tokens, rows of a fixed length have 8") != std::string::npos);
    CHECK(text.find("100, 101, 102") != std::string::npos);
  }
}

TEST_CASE("row share: grids that do not make the row's patches are an error of the data plugin") {
  Row row = row_of(kRows[4]);
  row.facts.grid_thw = {1, 2, 4};
  try {
    share_row(std::move(row), mesh_of({2, 1, false}, 0));
    FAIL("not refused");
  } catch (const Error& error) {
    CHECK(error.problems().at(0).code == Code::kR4Contract);
  }
}

}  // namespace keyseat::row_share_test
