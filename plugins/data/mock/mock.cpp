// Legend: P patches, D elements of a patch.
#include "mock.h"

#include <ATen/ops/empty.h>

namespace keyseat_data_mock {

using keyseat::Option;
using keyseat::OptionType;
using keyseat::Sample;
using keyseat::data::Outcome;
using keyseat::data::SampleSize;

keyseat::OptionSchema Mock::options() {
  keyseat::OptionSchema schema = {
      Option("samples", OptionType::kInt)
          .defaults_to(int64_t{1024})
          .range(1, 1e9)
          .unit("samples")
          .doc("Size of the made-up source."),
      Option("min_tokens", OptionType::kInt)
          .defaults_to(int64_t{64})
          .range(2, 1 << 24)
          .unit("tokens")
          .doc("Shortest text of a sample, visual tokens not counted."),
      Option("max_sample_tokens", OptionType::kInt)
          .defaults_to(int64_t{64})
          .range(2, 1 << 24)
          .unit("tokens")
          .doc("Longest text of a sample, visual tokens not counted."),
      Option("images", OptionType::kInt)
          .defaults_to(int64_t{0})
          .range(0, 1024)
          .doc("Images per sample; without any, throughput misleads about twofold."),
      Option("image_patches", OptionType::kInt)
          .defaults_to(int64_t{16})
          .range(1, 4096)
          .unit("patches")
          .doc("Edge of the square images; a multiple of the merge size."),
  };
  const auto common = keyseat::data::packed_data_options();
  schema.insert(schema.end(), common.begin(), common.end());
  return schema;
}

keyseat::Problems Mock::validate(const keyseat::Options& options) {
  keyseat::Problems problems = keyseat::data::validate_packed_data(options);
  if (options.get_int("min_tokens") > options.get_int("max_sample_tokens")) {
    problems.push_back(options.problem(keyseat::Code::kC4Combination, "min_tokens",
                                       "min_tokens is above max_sample_tokens"));
  }
  return problems;
}

Mock::Mock(const keyseat::Options& options, const keyseat::PluginHost& host)
    : PackedData(options),
      samples_(options.get_int("samples")),
      min_tokens_(options.get_int("min_tokens")),
      max_sample_tokens_(options.get_int("max_sample_tokens")),
      images_(options.get_int("images")),
      image_patches_(options.get_int("image_patches")) {
  host.log->warn("mock data: no figure of this run is a performance measurement");
}

Mock::~Mock() { stop_loading(); }

keyseat::Problems Mock::open_(const keyseat::DataFacts& facts) {
  const keyseat::InputSpec& input = facts.input;
  if (images_ > 0 && (input.patch_size == 0 || image_patches_ % input.merge_size != 0)) {
    return {PackedData::options().problem(
        keyseat::Code::kC4Combination, "images",
        input.patch_size == 0
            ? std::string("the model takes no images")
            : fmt::format("image_patches {} is not a multiple of the merge size {}", image_patches_,
                          input.merge_size))};
  }
  return {};
}

Sample Mock::text_of(int64_t id) const {
  const keyseat::InputSpec& input = facts().input;
  std::mt19937_64 random(static_cast<uint64_t>(facts().seed) * 0x9e3779b97f4a7c15ull +
                         static_cast<uint64_t>(id));
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  const std::set<int64_t> reserved = {input.image_token_id, input.video_token_id,
                                      input.vision_start_token_id, input.vision_end_token_id};
  Sample sample;
  sample.id = id;
  sample.key = key_(id);
  const auto add = [&](int64_t token, int8_t type) {
    sample.tokens.push_back(token);
    sample.token_type.push_back(type);
  };
  for (int64_t image = 0; image < images_; ++image) {
    add(input.vision_start_token_id, 0);
    const int64_t edge = image_patches_ / input.merge_size;
    for (int64_t i = 0; i < edge * edge; ++i) add(input.image_token_id, 1);
    add(input.vision_end_token_id, 0);
    for (int64_t size : {int64_t{1}, image_patches_, image_patches_})
      sample.grid_thw.push_back(size);
  }
  const auto text_begin = sample.tokens.size();
  for (int64_t left = min_tokens_ + below(max_sample_tokens_ - min_tokens_ + 1); left > 0;) {
    const int64_t token = below(input.vocab_size);
    if (reserved.count(token) > 0) continue;
    add(token, 0);
    --left;
  }
  sample.labels.assign(sample.tokens.size(), -100);
  for (size_t i = text_begin; i + 1 < sample.tokens.size(); ++i)
    sample.labels[i] = sample.tokens[i + 1];
  return sample;
}

Outcome<Sample> Mock::load_(int64_t id, int64_t) const {
  Sample sample = text_of(id);
  if (images_ == 0) return sample;
  const keyseat::InputSpec& input = facts().input;
  const int64_t patches = images_ * image_patches_ * image_patches_;
  const int64_t elements =
      input.channels * input.temporal_patch_size * input.patch_size * input.patch_size;
  sample.patches = at::empty({patches, elements}, at::TensorOptions(at::kFloat));
  uint64_t state = static_cast<uint64_t>(id) + 1;
  float* values = sample.patches.data_ptr<float>();
  for (int64_t i = 0; i < patches * elements; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    values[i] = static_cast<float>(state >> 40) / static_cast<float>(1 << 23) -
                1.0f;  // [-1, 1), as real pixels
  }
  return sample;
}

Outcome<Sample> Mock::load_prompt_(int64_t id) const { return load_(id, -1); }

Outcome<SampleSize> Mock::measure_(int64_t id) const {
  return SampleSize{static_cast<int64_t>(text_of(id).tokens.size()),
                    images_ * image_patches_ * image_patches_, images_};
}

std::string Mock::key_(int64_t id) const { return fmt::format("mock:{}", id); }

std::string Mock::decode(const std::vector<int64_t>& tokens) const {
  return fmt::format("{} tokens", tokens.size());
}

}  // namespace keyseat_data_mock
