#include "tools/keyseat/chain/meta_row.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "keyseat/data/packing.h"

namespace keyseat::tool::chain {
namespace {

void refuse_row(std::string what, std::string remedy) {
  throw Error(Problem{Code::kC4Combination, {}, std::move(what), "", std::move(remedy)});
}

}  // namespace

Row meta_row(const RowShape& shape, const InputSpec& input) {
  Sample sample;
  const auto add = [&](int64_t count, int64_t token, int8_t type) {
    sample.tokens.insert(sample.tokens.end(), static_cast<size_t>(count), token);
    sample.token_type.insert(sample.token_type.end(), static_cast<size_t>(count), type);
  };
  if (shape.visual_tokens > 0) {
    if (input.patch_size == 0) {
      refuse_row("the model takes no images", "leave out --visual-tokens");
    }
    int64_t height = 1;
    for (int64_t side = 1; side * side <= shape.visual_tokens; ++side) {
      if (shape.visual_tokens % side == 0) height = side;
    }
    sample.grid_thw = {1, height * input.merge_size,
                       shape.visual_tokens / height * input.merge_size};
    const int64_t patches = shape.visual_tokens * input.merge_size * input.merge_size;
    const int64_t elements =
        input.channels * input.temporal_patch_size * input.patch_size * input.patch_size;
    sample.patches =
        at::empty({patches, elements}, at::TensorOptions().device(at::kMeta).dtype(at::kFloat));
    add(shape.visual_tokens, input.image_token_id, 1);
  }
  if (shape.tokens <= shape.visual_tokens) {
    refuse_row(fmt::format("a row of {} tokens cannot hold {} visual ones and text", shape.tokens,
                           shape.visual_tokens),
               "give more --tokens or fewer --visual-tokens");
  }
  add(shape.tokens - shape.visual_tokens, 0, 0);
  sample.labels.assign(sample.tokens.size(), 0);
  std::fill_n(sample.labels.begin(), shape.visual_tokens, -100);
  sample.labels.back() = -100;
  data::PackOptions options;
  options.input = input;
  return data::pack({&sample}, options);
}

}  // namespace keyseat::tool::chain
