#include "train/input_spec.h"

#include "train/block_text.h"

namespace keyseat {
namespace {

std::string to_text(int64_t value) { return std::to_string(value); }
std::string to_text(const std::string& value) { return '"' + value + '"'; }
std::string to_text(const std::vector<double>& value) {
  return fmt::format("[{}]", fmt::join(value, ", "));
}

class Merger {
 public:
  Merger(const std::vector<NamedBlock>& blocks, Problems& problems) : problems_(problems) {
    for (const NamedBlock& block : blocks) specs_.emplace_back(&block, block.block->input_spec());
  }

  // Channels have a default, so they count only where a block takes images.
  template <typename T>
  T field(const char* name, T InputSpec::*member, const T& unset, bool images_only = false) {
    const NamedBlock* source = nullptr;
    T merged = unset;
    for (const auto& [block, spec] : specs_) {
      const T& value = spec.*member;
      if (value == unset || (images_only && spec.patch_size == 0)) continue;
      if (source == nullptr) {
        source = block;
        merged = value;
      } else if (value != merged) {
        problems_.push_back(
            {Code::kC4Combination, block->where,
             fmt::format("block {} ({}) works with {} = {}, but {} with {}", block->name,
                         block->plugin, name, to_text(value), block_text(*source), to_text(merged)),
             "All blocks are fed from one data source", "Make their options agree"});
      }
    }
    return merged;
  }

  int64_t smallest(int64_t InputSpec::*member) {
    int64_t bound = 0;
    for (const auto& [block, spec] : specs_) {
      const int64_t value = spec.*member;
      if (value > 0 && (bound == 0 || value < bound)) bound = value;
    }
    return bound;
  }

 private:
  std::vector<std::pair<const NamedBlock*, InputSpec>> specs_;
  Problems& problems_;
};

}  // namespace

InputSpec merge_input_specs(const std::vector<NamedBlock>& blocks, Problems& problems) {
  Merger merger(blocks, problems);
  const int64_t zero = 0, no_id = -1;
  InputSpec merged;
  merged.patch_size = merger.field("patch_size", &InputSpec::patch_size, zero);
  merged.temporal_patch_size =
      merger.field("temporal_patch_size", &InputSpec::temporal_patch_size, zero);
  merged.merge_size = merger.field("merge_size", &InputSpec::merge_size, zero);
  merged.channels = merger.field("channels", &InputSpec::channels, zero, true);
  if (merged.channels == 0) merged.channels = InputSpec{}.channels;
  merged.min_pixels = merger.field("min_pixels", &InputSpec::min_pixels, zero);
  merged.max_pixels = merger.field("max_pixels", &InputSpec::max_pixels, zero);
  merged.image_mean = merger.field("image_mean", &InputSpec::image_mean, {});
  merged.image_std = merger.field("image_std", &InputSpec::image_std, {});
  merged.vocab_size = merger.field("vocab_size", &InputSpec::vocab_size, zero);
  merged.image_token_id = merger.field("image_token_id", &InputSpec::image_token_id, no_id);
  merged.video_token_id = merger.field("video_token_id", &InputSpec::video_token_id, no_id);
  merged.vision_start_token_id =
      merger.field("vision_start_token_id", &InputSpec::vision_start_token_id, no_id);
  merged.vision_end_token_id =
      merger.field("vision_end_token_id", &InputSpec::vision_end_token_id, no_id);
  merged.position_rule = merger.field("position_rule", &InputSpec::position_rule, {});
  merged.max_positions = merger.smallest(&InputSpec::max_positions);
  return merged;
}

}  // namespace keyseat
