// Legend: T row tokens, P patches, V visual tokens, N images, S samples.
#include "keyseat/data/packing.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "keyseat/nn/rope.h"

namespace keyseat::data {

namespace {

constexpr int64_t kIgnored = -100;

template <typename T>
at::Tensor to_tensor(const std::vector<T>& values, at::ScalarType dtype, at::IntArrayRef shape) {
  at::Tensor tensor = at::empty(shape, at::TensorOptions(dtype));
  if (!values.empty()) std::memcpy(tensor.data_ptr(), values.data(), values.size() * sizeof(T));
  return tensor;
}

// What is collected while the samples are laid side by side.
struct Flat {
  std::vector<int64_t> tokens, labels, segments, visual_dst, logit_rows;
  std::array<std::vector<int64_t>, 3> positions;
  std::vector<int32_t> cu_seqlens{0};
  std::vector<at::Tensor> patches;
};

void append_sample(const Sample& sample, const PackOptions& options, RowFacts& facts, Flat& flat) {
  const auto begin = static_cast<int64_t>(flat.tokens.size());
  const auto length = static_cast<int64_t>(sample.tokens.size());
  const auto segment = static_cast<int64_t>(facts.sample_ids.size());
  flat.tokens.insert(flat.tokens.end(), sample.tokens.begin(), sample.tokens.end());
  flat.labels.insert(flat.labels.end(), sample.labels.begin(), sample.labels.end());
  flat.segments.insert(flat.segments.end(), static_cast<size_t>(length), segment);

  const bool mrope = options.input.position_rule == "mrope";
  const int64_t merge = std::max<int64_t>(options.input.merge_size, 1);
  const std::vector<int64_t> positions =
      mrope ? nn::mrope_positions(sample.token_type, sample.grid_thw, merge)
            : std::vector<int64_t>();
  for (int64_t axis = 0; axis < 3; ++axis) {
    for (int64_t i = 0; i < length; ++i)
      flat.positions[axis].push_back(mrope ? positions[axis * length + i] : i);
  }
  for (int64_t i = 0; i < length; ++i) {
    if (sample.token_type[i] != 0) flat.visual_dst.push_back(begin + i);
    if (options.all_logits || (options.last_logits && i + 1 == length))
      flat.logit_rows.push_back(begin + i);
  }
  for (size_t n = 0; n + 2 < sample.grid_thw.size(); n += 3) {
    const int64_t frame = sample.grid_thw[n + 1] * sample.grid_thw[n + 2];
    for (int64_t t = 0; t < sample.grid_thw[n]; ++t) {
      facts.vision_cu_seqlens.push_back(facts.vision_cu_seqlens.back() + frame);
    }
  }
  facts.grid_thw.insert(facts.grid_thw.end(), sample.grid_thw.begin(), sample.grid_thw.end());
  if (sample.patches.defined() && sample.patches.size(0) > 0)
    flat.patches.push_back(sample.patches);
  facts.sample_ids.push_back(sample.id);
  facts.cu_seqlens.push_back(begin + length);
  ++facts.counts.samples;
  facts.counts.supervised +=
      std::count_if(sample.labels.begin(), sample.labels.end(), [](int64_t l) { return l >= 0; });
}

// One last segment that nothing attends to, routes, counts or trains on.
void append_tail(int64_t pad_to, RowFacts& facts, Flat& flat) {
  const int64_t tail = pad_to - static_cast<int64_t>(flat.tokens.size());
  if (tail <= 0) return;
  const auto segment = static_cast<int64_t>(facts.sample_ids.size());
  flat.tokens.insert(flat.tokens.end(), static_cast<size_t>(tail), 0);
  flat.labels.insert(flat.labels.end(), static_cast<size_t>(tail), kIgnored);
  flat.segments.insert(flat.segments.end(), static_cast<size_t>(tail), segment);
  for (auto& axis : flat.positions) axis.insert(axis.end(), static_cast<size_t>(tail), 0);
  facts.cu_seqlens.push_back(pad_to);
  facts.counts.padding = tail;
}

}  // namespace

Row pack(const std::vector<const Sample*>& samples, const PackOptions& options, int64_t failed) {
  Row row;
  RowFacts& facts = row.facts;
  facts.cu_seqlens = {0};
  facts.vision_cu_seqlens = {0};
  facts.counts.failed = failed;
  Flat flat;
  for (const Sample* sample : samples) append_sample(*sample, options, facts, flat);
  facts.counts.tokens = static_cast<int64_t>(flat.tokens.size());
  facts.shared_tokens = facts.counts.tokens;
  append_tail(options.pad_to, facts, flat);
  flat.cu_seqlens.assign(facts.cu_seqlens.begin(), facts.cu_seqlens.end());

  const auto tokens = static_cast<int64_t>(flat.tokens.size());
  const auto images = static_cast<int64_t>(facts.grid_thw.size()) / 3;
  const InputSpec& input = options.input;
  const int64_t patch_elements =
      input.channels * input.temporal_patch_size * input.patch_size * input.patch_size;
  std::vector<int64_t> positions;
  for (const auto& axis : flat.positions)
    positions.insert(positions.end(), axis.begin(), axis.end());

  row.tensors.set("tokens", to_tensor(flat.tokens, at::kLong, {tokens}));
  row.tensors.set("labels", to_tensor(flat.labels, at::kLong, {tokens}));
  row.tensors.set("segment_ids", to_tensor(flat.segments, at::kLong, {tokens}));
  row.tensors.set("cu_seqlens", to_tensor(flat.cu_seqlens, at::kInt,
                                          {static_cast<int64_t>(flat.cu_seqlens.size())}));
  row.tensors.set("position_ids", to_tensor(positions, at::kLong, {3, tokens}));
  row.tensors.set("visual_dst", to_tensor(flat.visual_dst, at::kLong,
                                          {static_cast<int64_t>(flat.visual_dst.size())}));
  row.tensors.set("logit_rows", to_tensor(flat.logit_rows, at::kLong,
                                          {static_cast<int64_t>(flat.logit_rows.size())}));
  row.tensors.set("grid_thw", to_tensor(facts.grid_thw, at::kLong, {images, 3}));
  row.tensors.set("patches",
                  flat.patches.empty()
                      ? at::empty({0, patch_elements}, at::TensorOptions(at::kFloat))
                      : (flat.patches.size() == 1 ? flat.patches[0] : at::cat(flat.patches)));
  facts.counts.images = images;
  facts.counts.patches = row.tensors.at("patches").size(0);
  facts.counts.visual_tokens = static_cast<int64_t>(flat.visual_dst.size());
  return row;
}

}  // namespace keyseat::data
