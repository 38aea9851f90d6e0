// images/: decoding, resizing and cutting of image files.
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "keyseat/data/image.h"
#include "keyseat/data/patches.h"
#include "keyseat/data/resize.h"
#include "keyseat/safetensors.h"
#include "tools/keyseat/parity/compare.h"
#include "tools/keyseat/parity/fixtures.h"

namespace keyseat::tool::parity {

namespace fs = std::filesystem;

namespace {

// JPEG decoders of other libjpeg-turbo versions may round differently by one.
constexpr double kJpegLimit = 1;

struct Setting {
  data::PatchFormat format;
  data::ResizeBounds bounds;
};

Setting read_setting(const nlohmann::json& json, const std::string& file) {
  const auto require = [&](const char* key, const nlohmann::json& wanted) {
    if (json.at(key) != wanted) {
      refuse_recording(file, fmt::format("{} is {}", key, json.at(key).dump()),
                       fmt::format("images are processed with {} = {} only", key, wanted.dump()));
    }
  };
  for (const char* key : {"do_resize", "do_rescale", "do_normalize", "do_convert_rgb"})
    require(key, true);
  require("resample", 3);  // bicubic
  require("rescale_factor", 1.0 / 255.0);
  Setting setting;
  setting.format.patch_size = json.at("patch_size");
  setting.format.temporal_patch_size = json.at("temporal_patch_size");
  setting.format.merge_size = json.at("merge_size");
  setting.format.mean = json.at("image_mean");
  setting.format.std = json.at("image_std");
  setting.bounds.factor = setting.format.factor();
  setting.bounds.min_pixels = json.at("size").at("shortest_edge");
  setting.bounds.max_pixels = json.at("size").at("longest_edge");
  return setting;
}

data::Image to_image(const at::Tensor& rgb_HWC) {
  const at::Tensor bytes = rgb_HWC.contiguous();
  const auto* begin = bytes.const_data_ptr<uint8_t>();
  return {bytes.size(0), bytes.size(1), {begin, begin + bytes.numel()}};
}

at::Tensor to_tensor(const data::Image& image) {
  const at::Tensor rgb_HWC = at::empty({image.height, image.width, 3}, at::kByte);
  std::memcpy(rgb_HWC.data_ptr(), image.rgb.data(), image.rgb.size());
  return rgb_HWC;
}

class ImageChecks {
 public:
  ImageChecks(std::string prefix, const SafetensorsReader& recorded, Report& report)
      : prefix_(std::move(prefix)), recorded_(recorded), report_(report) {}

  void run(const std::string& file, const Setting& setting) {
    const bool jpeg = file.ends_with(".jpg") || file.ends_with(".jpeg");
    if (has("decoded_rgb")) check_decode(file, jpeg ? kJpegLimit : 0);
    if (has("decoded_rgb") && has("resized_rgb")) check_processing(setting);
    for (const std::string& name : recorded_.names()) {
      if (known_.contains(name)) continue;
      report_.not_compared.push_back(
          {prefix_ + name, "parity does not know what this tensor is", false});
    }
  }

 private:
  bool has(const std::string& name) {
    known_.insert(name);
    if (recorded_.has(name)) return true;
    report_.checks.push_back(exact_check(prefix_ + name, "missing in the recording"));
    return false;
  }

  void compare(const std::string& name, const at::Tensor& computed, double limit) {
    if (has(name)) {
      report_.checks.push_back(
          compare_tensors(prefix_ + name, computed, recorded_.tensor(name), {limit}));
    }
  }

  void check_decode(const std::string& file, double limit) {
    const auto decoded = data::decode_image_file(file);
    if (decoded) {
      compare("decoded_rgb", to_tensor(decoded.value()), limit);
    } else {
      report_.checks.push_back(exact_check(prefix_ + "decoded_rgb", decoded.fault().detail));
    }
  }

  // From the recorded decode, so that decoders cannot interfere.
  void check_processing(const Setting& setting) {
    const data::Image decoded = to_image(recorded_.tensor("decoded_rgb"));
    const auto size = data::smart_resize({decoded.height, decoded.width}, setting.bounds);
    if (!size) {
      report_.checks.push_back(exact_check(prefix_ + "resized_rgb", size.fault().detail));
      return;
    }
    const data::Image resized = data::resize_bicubic(decoded, size.value());
    compare("resized_rgb", to_tensor(resized), 0);
    const data::PatchCutter cutter(setting.format);
    const data::PatchGrid grid = cutter.grid(resized.height, resized.width);
    const at::Tensor rows_PD = at::empty({grid.patches(), setting.format.row_size()}, at::kFloat);
    const auto cut =
        cutter.cut(std::span(&resized, 1),
                   std::span(rows_PD.data_ptr<float>(), static_cast<size_t>(rows_PD.numel())));
    if (!cut) {
      report_.checks.push_back(exact_check(prefix_ + "pixel_values", cut.fault().detail));
      return;
    }
    compare("pixel_values", rows_PD, 0);
    at::Tensor grid_13 = at::empty({1, 3}, at::kLong);
    const int64_t values[] = {grid.t, grid.h, grid.w};
    std::memcpy(grid_13.data_ptr(), values, sizeof values);
    compare("image_grid_thw", grid_13, 0);
  }

  std::string prefix_;
  const SafetensorsReader& recorded_;
  Report& report_;
  std::set<std::string> known_;
};

}  // namespace

Report images_parity(const ParityArguments& arguments) {
  const fs::path folder = arguments.folder;
  const std::string processor = (folder / "processor.json").string();
  const nlohmann::json root = read_json_file(processor);
  Report report;
  report.case_name = fs::canonical(folder).filename();
  std::set<std::string> listed{"processor.json"};
  try {
    for (const nlohmann::json& item : root.at("images")) {
      const std::string file = item.at("file"), tensors = item.at("tensors"),
                        name = item.at("processor");
      listed.insert({file, tensors});
      const Setting setting = read_setting(root.at("settings").at(name), processor);
      const auto recorded = SafetensorsReader::open((folder / tensors).string()).value_or_throw();
      ImageChecks(fmt::format("{} ({}) ", file, name), recorded, report)
          .run((folder / file).string(), setting);
    }
  } catch (const nlohmann::json::exception& error) {
    refuse_recording(processor, fmt::format("not the expected content: {}", json_mismatch(error)));
  }
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string file = entry.path().filename();
    if (!listed.contains(file))
      report.not_compared.push_back({file, "processor.json does not list it", false});
  }
  return report;
}

}  // namespace keyseat::tool::parity
