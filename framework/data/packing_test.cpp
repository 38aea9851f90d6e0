// Legend: T row tokens, V visual tokens.
#include "keyseat/data/packing.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

using namespace keyseat;
using namespace keyseat::data;

namespace {

InputSpec input(const std::string& rule = "mrope") {
  InputSpec spec;
  spec.patch_size = 2;
  spec.temporal_patch_size = 2;
  spec.merge_size = 2;
  spec.position_rule = rule;
  return spec;
}

constexpr int64_t kElements = 3 * 2 * 2 * 2;

Sample text(int64_t id, int64_t length) {
  Sample sample;
  sample.id = id;
  for (int64_t i = 0; i < length; ++i) {
    sample.tokens.push_back(100 * id + i);
    sample.labels.push_back(i + 1 < length ? 100 * id + i + 1 : -100);
    sample.token_type.push_back(0);
  }
  return sample;
}

// 1 text token, an image of 2 x 4 patches (2 visual tokens), 1 text token.
Sample picture(int64_t id) {
  Sample sample = text(id, 4);
  sample.token_type = {0, 1, 1, 0};
  sample.labels = {-100, -100, 7, -100};
  sample.grid_thw = {1, 2, 4};
  sample.patches = at::arange(8 * kElements, at::TensorOptions(at::kFloat)).view({8, kElements});
  return sample;
}

std::vector<int64_t> list(const at::Tensor& values) {
  const at::Tensor flat = values.to(at::kLong).contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

using SampleIds = std::vector<int64_t>;

}  // namespace

TEST_CASE("packing: samples side by side, positions restart, nothing is lost") {
  const Sample a = text(1, 3), b = picture(2), c = text(3, 2);
  PackOptions options;
  options.input = input();
  const Row row = pack({&a, &b, &c}, options, /*failed=*/2);
  const auto& tensors = row.tensors;
  CHECK(list(tensors.at("tokens")) == SampleIds{100, 101, 102, 200, 201, 202, 203, 300, 301});
  CHECK(list(tensors.at("labels")) == SampleIds{101, 102, -100, -100, -100, 7, -100, 301, -100});
  CHECK(list(tensors.at("segment_ids")) == SampleIds{0, 0, 0, 1, 1, 1, 1, 2, 2});
  CHECK(list(tensors.at("cu_seqlens")) == SampleIds{0, 3, 7, 9});
  CHECK(list(tensors.at("visual_dst")) == SampleIds{4, 5});
  CHECK(list(tensors.at("grid_thw")) == SampleIds{1, 2, 4});
  CHECK(list(tensors.at("logit_rows")).empty());
  CHECK(at::equal(tensors.at("patches"), b.patches));
  // Axes t, h, w: text counts on; the image spans 1 x 1 x 2 merged positions from 1 on, the text
  // behind it goes on after the largest.
  CHECK(tensors.at("position_ids").sizes() == at::IntArrayRef({3, 9}));
  CHECK(list(tensors.at("position_ids").select(0, 0)) == SampleIds{0, 1, 2, 0, 1, 1, 3, 0, 1});
  CHECK(list(tensors.at("position_ids").select(0, 2)) == SampleIds{0, 1, 2, 0, 1, 2, 3, 0, 1});
  const RowFacts& facts = row.facts;
  CHECK(facts.cu_seqlens == SampleIds{0, 3, 7, 9});
  CHECK(facts.vision_cu_seqlens == SampleIds{0, 8});
  CHECK(facts.sample_ids == SampleIds{1, 2, 3});
  CHECK(facts.counts.tokens == 9);
  CHECK(facts.counts.padding == 0);
  CHECK(facts.counts.patches == 8);
  CHECK(facts.counts.visual_tokens == 2);
  CHECK(facts.counts.images == 1);
  CHECK(facts.counts.supervised == 4);
  CHECK(facts.counts.samples == 3);
  CHECK(facts.counts.failed == 2);
}

TEST_CASE("packing: standard tensors have their dtypes, also in an empty row") {
  PackOptions options;
  options.input = input();
  const Sample a = picture(1);
  for (const Row& row : {pack({}, options, 3), pack({&a}, options)}) {
    for (const BatchTensor& standard : batch_tensors()) {
      INFO(standard.name);
      const at::Tensor tensor = row.tensors.at(standard.name);
      CHECK((tensor.scalar_type() == standard.dtype));
      CHECK(tensor.dim() == standard.dims);
    }
  }
  const Row empty = pack({}, options, 3);
  CHECK(empty.facts.row_tokens() == 0);
  CHECK(empty.facts.counts.failed == 3);
  CHECK(empty.tensors.at("patches").sizes() == at::IntArrayRef({0, kElements}));
  CHECK(list(empty.tensors.at("cu_seqlens")) == SampleIds{0});
}

TEST_CASE("packing: the tail is a segment of its own that counts for nothing") {
  const Sample a = text(1, 3), b = text(2, 2);
  PackOptions options;
  options.input = input();
  options.pad_to = 8;
  const Row row = pack({&a, &b}, options);
  CHECK(row.facts.counts.tokens == 5);
  CHECK(row.facts.counts.padding == 3);
  CHECK(row.facts.row_tokens() == 8);
  CHECK(row.facts.counts.samples == 2);
  CHECK(row.facts.shared_tokens == 5);
  CHECK(row.facts.cu_seqlens == SampleIds{0, 3, 5, 8});
  CHECK(list(row.tensors.at("segment_ids")) == SampleIds{0, 0, 0, 1, 1, 2, 2, 2});
  CHECK(list(row.tensors.at("labels")) == SampleIds{101, 102, -100, 201, -100, -100, -100, -100});
  options.pad_to = 4;  // a longer row stays as it is
  CHECK(pack({&a, &b}, options).facts.counts.padding == 0);
}

TEST_CASE("packing: rows of which logits are wanted") {
  const Sample a = text(1, 3), b = text(2, 2);
  PackOptions options;
  options.input = input();
  options.last_logits = true;
  CHECK(list(pack({&a, &b}, options).tensors.at("logit_rows")) == SampleIds{2, 4});
  options.last_logits = false;
  options.all_logits = true;
  options.pad_to = 7;  // of real tokens only
  CHECK(list(pack({&a, &b}, options).tensors.at("logit_rows")) == SampleIds{0, 1, 2, 3, 4});
}

TEST_CASE("packing: plain positions count the tokens of a sample, also of images") {
  const Sample a = picture(1), b = text(2, 2);
  PackOptions options;
  options.input = input("plain");
  const at::Tensor positions_3T = pack({&a, &b}, options).tensors.at("position_ids");
  for (int64_t axis = 0; axis < 3; ++axis)
    CHECK(list(positions_3T.select(0, axis)) == SampleIds{0, 1, 2, 3, 0, 1});
}

TEST_CASE("packing: frames of videos attend apart, images of several samples follow each other") {
  Sample video = text(1, 4);
  video.token_type = {2, 0, 2, 0};
  video.grid_thw = {2, 2, 2};
  video.patches = at::arange(8 * kElements, at::TensorOptions(at::kFloat)).view({8, kElements});
  const Sample image = picture(2);
  PackOptions options;
  options.input = input();
  const Row row = pack({&video, &image}, options);
  CHECK(row.facts.vision_cu_seqlens == SampleIds{0, 4, 8, 16});
  CHECK(list(row.tensors.at("visual_dst")) == SampleIds{0, 2, 5, 6});
  CHECK(row.facts.counts.images == 2);
  CHECK(at::equal(row.tensors.at("patches").slice(0, 8), image.patches));
}
