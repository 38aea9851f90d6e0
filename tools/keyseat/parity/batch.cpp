#include "tools/keyseat/parity/batch.h"

#include <ATen/ops/cat.h>

#include "tools/keyseat/parity/fixtures.h"

namespace keyseat::tool::parity {

namespace {

constexpr int64_t kIgnored = -100;
constexpr int64_t kImage = 1, kVideo = 2;

// The images or the videos of the batch, handed out in order.
struct Visuals {
  std::vector<int64_t> grids;  // [N * 3]
  at::Tensor patches;
  size_t next = 0;          // grid
  int64_t next_patch = 0;   // recorded row
  int64_t groups_left = 0;  // frame groups of the current video still to come

  int64_t count() const { return static_cast<int64_t>(grids.size()) / 3; }
};

std::vector<int64_t> to_vector(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

class BatchReader {
 public:
  BatchReader(const SafetensorsReader& inputs, const std::string& file, const InputSpec& input)
      : inputs_(inputs),
        file_(file),
        input_(input),
        merge_(std::max<int64_t>(input.merge_size, 1)) {}

  Batch read() {
    refuse_unknown();
    const at::Tensor ids_BS = tensor("input_ids");
    if (ids_BS.dim() != 2) refuse("input_ids is not [B, S]");
    batch_.rows = ids_BS.size(0);
    batch_.length = ids_BS.size(1);
    ids_ = to_vector(ids_BS);
    mask_ = per_token("attention_mask");
    labels_ = per_token("labels");
    types_ = inputs_.has("mm_token_type_ids") ? per_token("mm_token_type_ids")
                                              : std::vector<int64_t>(ids_.size(), 0);
    images_ = visuals("pixel_values", "image_grid_thw");
    videos_ = visuals("pixel_values_videos", "video_grid_thw");
    batch_.images.patches.resize(images_.patches.defined() ? images_.patches.size(0) : 0);
    batch_.videos.patches.resize(videos_.patches.defined() ? videos_.patches.size(0) : 0);
    batch_.images.tokens.resize(batch_.images.patches.size() / unit());
    batch_.videos.tokens.resize(batch_.videos.patches.size() / unit());
    for (int64_t row = 0; row < batch_.rows; ++row) read_row(row);
    for (const Visuals* used : {&images_, &videos_}) {
      if (static_cast<int64_t>(used->next) != used->count() || used->groups_left != 0)
        refuse("more images or videos are given than the rows have places for");
    }
    return std::move(batch_);
  }

 private:
  [[noreturn]] void refuse(std::string what) const { refuse_recording(file_, std::move(what)); }
  size_t unit() const { return static_cast<size_t>(merge_ * merge_); }

  void refuse_unknown() const {
    static const std::set<std::string> known{
        "input_ids",    "attention_mask", "labels",         "mm_token_type_ids",
        "pixel_values", "image_grid_thw", "video_grid_thw", "pixel_values_videos"};
    for (const std::string& name : inputs_.names()) {
      if (!known.contains(name)) refuse(fmt::format("\"{}\" is no input that parity knows", name));
    }
  }

  at::Tensor tensor(const std::string& name) const {
    if (!inputs_.has(name)) refuse(fmt::format("\"{}\" is missing", name));
    const bool floating = name.starts_with("pixel_values");
    if (inputs_.dtype(name) != (floating ? at::kFloat : at::kLong))
      refuse(fmt::format("\"{}\" is {}", name, at::toString(inputs_.dtype(name))));
    return inputs_.tensor(name);
  }

  std::vector<int64_t> per_token(const std::string& name) const {
    const at::Tensor values_BS = tensor(name);
    if (values_BS.dim() != 2 || values_BS.size(0) != batch_.rows ||
        values_BS.size(1) != batch_.length)
      refuse(fmt::format("\"{}\" and input_ids differ in shape", name));
    return to_vector(values_BS);
  }

  Visuals visuals(const std::string& pixels, const std::string& grids) const {
    Visuals found;
    if (!inputs_.has(pixels) && !inputs_.has(grids)) return found;
    found.patches = tensor(pixels);
    const at::Tensor grids_N3 = tensor(grids);
    if (grids_N3.dim() != 2 || grids_N3.size(1) != 3) refuse(grids + " is not [N, 3]");
    found.grids = to_vector(grids_N3);
    int64_t rows = 0;
    for (size_t n = 0; n < found.grids.size(); n += 3) {
      const int64_t* edge = &found.grids[n];
      const bool sound =
          std::all_of(edge, edge + 3, [](int64_t e) { return e >= 1 && e < 1 << 20; });
      if (!sound || edge[1] % merge_ != 0 || edge[2] % merge_ != 0) {
        refuse(fmt::format("{}: a grid of {} x {} x {} patches cannot be merged", grids, edge[0],
                           edge[1], edge[2]));
      }
      rows += edge[0] * edge[1] * edge[2];
    }
    const int64_t elements =
        input_.channels * input_.temporal_patch_size * input_.patch_size * input_.patch_size;
    if (found.patches.dim() != 2 || found.patches.size(0) != rows ||
        found.patches.size(1) != elements) {
      refuse(fmt::format("{} is [{}], the grids and the model's patches make [{}, {}]", pixels,
                         fmt::join(found.patches.sizes(), ", "), rows, elements));
    }
    return found;
  }

  void read_row(int64_t row) {
    Sample sample;
    sample.id = row;
    sample.key = fmt::format("row {}", row);
    std::vector<int64_t> labels;
    for (int64_t s = 0; s < batch_.length; ++s) {
      const int64_t at = row * batch_.length + s;
      if (mask_[at] == 0) continue;
      check_token("input_ids", ids_[at], 0, input_.vocab_size, at);
      check_token("mm_token_type_ids", types_[at], 0, kVideo + 1, at);
      if (labels_[at] != kIgnored) check_token("labels", labels_[at], 0, input_.vocab_size, at);
      sample.tokens.push_back(ids_[at]);
      sample.token_type.push_back(static_cast<int8_t>(types_[at]));
      labels.push_back(labels_[at]);
      batch_.real.push_back(at);
      batch_.sample_of.push_back(row);
    }
    // The recording shifts inside the model: position s is scored against label s + 1.
    if (!labels.empty()) sample.labels.assign(labels.begin() + 1, labels.end());
    sample.labels.resize(labels.size(), kIgnored);
    take_visuals(sample);
    batch_.samples.push_back(std::move(sample));
  }

  void check_token(const char* name, int64_t value, int64_t first, int64_t end, int64_t at) const {
    if (value >= first && value < end) return;
    refuse(fmt::format("{} [{}, {}] is {}, values are {} to {}", name, at / batch_.length,
                       at % batch_.length, value, first, end - 1));
  }

  void take_visuals(Sample& sample) {
    std::vector<at::Tensor> patches;
    for (size_t i = 0; i < sample.token_type.size();) {
      const int64_t kind = sample.token_type[i];
      if (kind == 0) {
        ++i;
        continue;
      }
      Visuals& source = kind == kImage ? images_ : videos_;
      if (source.groups_left == 0) {
        patches.push_back(begin_visual(source, kind, sample));
      }
      const size_t grid = 3 * (source.next - 1);
      // An image stands in one run, a video frame group by frame group.
      const int64_t groups = kind == kImage ? source.groups_left : 1;
      const int64_t tokens =
          groups * source.grids[grid + 1] * source.grids[grid + 2] / static_cast<int64_t>(unit());
      for (int64_t n = 0; n < tokens; ++n, ++i) {
        if (i >= sample.token_type.size() || sample.token_type[i] != kind)
          refuse(fmt::format("{}: a visual run is shorter than its grid", sample.key));
      }
      source.groups_left -= groups;
    }
    if (images_.groups_left != 0 || videos_.groups_left != 0)
      refuse(fmt::format("{} ends inside a video", sample.key));
    if (!patches.empty()) sample.patches = at::cat(patches);
  }

  // Its patches go behind those already packed.
  at::Tensor begin_visual(Visuals& source, int64_t kind, Sample& sample) {
    const size_t grid = 3 * source.next;
    if (grid >= source.grids.size())
      refuse(fmt::format("{} has more visual runs than images or videos are given", sample.key));
    const int64_t frames = source.grids[grid], height = source.grids[grid + 1],
                  width = source.grids[grid + 2];
    const int64_t count = frames * height * width;
    VisualOrder& order = kind == kImage ? batch_.images : batch_.videos;
    std::iota(order.patches.begin() + source.next_patch,
              order.patches.begin() + source.next_patch + count, packed_patches_);
    const auto block = static_cast<int64_t>(unit());
    std::iota(order.tokens.begin() + source.next_patch / block,
              order.tokens.begin() + (source.next_patch + count) / block, packed_patches_ / block);
    const at::Tensor rows_PD = source.patches.narrow(0, source.next_patch, count);
    sample.grid_thw.insert(sample.grid_thw.end(), {frames, height, width});
    source.next_patch += count;
    packed_patches_ += count;
    source.groups_left = frames;
    ++source.next;
    return rows_PD;
  }

  const SafetensorsReader& inputs_;
  const std::string& file_;
  const InputSpec& input_;
  const int64_t merge_;
  Batch batch_;
  std::vector<int64_t> ids_, mask_, labels_, types_;
  Visuals images_, videos_;
  int64_t packed_patches_ = 0;
};

}  // namespace

Batch read_batch(const SafetensorsReader& inputs, const std::string& file, const InputSpec& input) {
  return BatchReader(inputs, file, input).read();
}

}  // namespace keyseat::tool::parity
