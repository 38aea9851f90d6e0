// Sources of data plugins, made by tests: folders, tar shards, records; and the digits set that
// ships with the repository. Tests run in the top folder of the checkout.
#pragma once

#include <ATen/core/Tensor.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "keyseat/interfaces/data.h"
#include "plugin/plugin_fixture.h"

namespace keyseat::testing {

inline constexpr const char* kHeldout = "configs/data/digits-heldout.tar";
inline constexpr int64_t kHeldoutSamples = 360;

class TempFolder {
 public:
  TempFolder() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("keyseat_data_" + std::to_string(getpid()) + "_" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  // Writes a file and gives its path.
  std::string write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return (path_ / name).string();
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

using Files = std::vector<std::pair<std::string, std::string>>;  // name, bytes

// An uncompressed ustar archive.
inline std::string tar_of(const Files& files) {
  std::string tar;
  for (const auto& [name, bytes] : files) {
    char header[512] = {};
    std::snprintf(header, 100, "%s", name.c_str());
    std::snprintf(header + 100, 8, "%07o", 0644);
    std::snprintf(header + 108, 8, "%07o", 0);
    std::snprintf(header + 116, 8, "%07o", 0);
    std::snprintf(header + 124, 12, "%011zo", bytes.size());
    std::snprintf(header + 136, 12, "%011o", 0);
    header[156] = '0';
    std::memcpy(header + 257, "ustar\00000", 8);
    std::memset(header + 148, ' ', 8);
    unsigned sum = 0;
    for (const char c : header) sum += static_cast<unsigned char>(c);
    std::snprintf(header + 148, 8, "%06o", sum);
    tar.append(header, sizeof header);
    tar += bytes;
    tar.append((512 - bytes.size() % 512) % 512, '\0');
  }
  return tar.append(1024, '\0');
}

// A member of the digits set, by its name.
inline std::string digits_member(const std::string& wanted) {
  std::ifstream stream(kHeldout, std::ios::binary);
  const std::string tar{std::istreambuf_iterator<char>(stream), {}};
  for (size_t at = 0; at + 512 <= tar.size() && tar[at] != '\0';) {
    const std::string name = tar.c_str() + at;
    const size_t size = std::stoul(tar.substr(at + 124, 11), nullptr, 8);
    if (name == wanted) return tar.substr(at + 512, size);
    at += 512 + (size + 511) / 512 * 512;
  }
  FAIL("no member " << wanted);
  return "";
}
inline std::string digit_png() { return digits_member("001135.png"); }
inline std::string digit_jpeg() { return digits_member("000976.jpg"); }

// {"messages": [...]} of a question about an image and its answer.
inline std::string digit_record(const std::string& image, const std::string& answer = "7") {
  return R"({"messages":[{"role":"user","content":[{"type":"image","image":")" + image +
         R"("},{"type":"text","text":"which digit is this?"}]},{"role":"assistant","content":")" +
         answer + R"("}]})";
}

// As configs/models/qwen3_vl_moe_tiny.toml asks: a digit becomes 16 patches, 4 visual tokens.
inline DataFacts digit_facts() {
  DataFacts facts;
  facts.input.patch_size = 8;
  facts.input.temporal_patch_size = 2;
  facts.input.merge_size = 2;
  facts.input.min_pixels = 1024;
  facts.input.max_pixels = 65536;
  facts.input.image_mean = facts.input.image_std = {0.5, 0.5, 0.5};
  facts.input.vocab_size = 640;
  facts.input.vision_start_token_id = 571;
  facts.input.vision_end_token_id = 572;
  facts.input.image_token_id = 573;
  facts.input.video_token_id = 574;
  facts.input.position_rule = "mrope";
  facts.input.max_positions = 2048;
  facts.seed = 5;
  return facts;
}

inline std::shared_ptr<Data> open_data(const std::string& name, const Values& values,
                                       const DataFacts& facts = digit_facts()) {
  auto data = make_plugin<Data>(name, values);
  const Problems problems = data->open(facts);
  REQUIRE(problems_text(problems) == "");
  return data;
}

// The row in words, to be compared: sample ids, tokens, labels and the bits of the patches.
inline std::string row_text(const Row& row) {
  std::string text;
  for (const int64_t id : row.facts.sample_ids) text += std::to_string(id) + ' ';
  for (const char* name : {"tokens", "labels", "position_ids", "patches"}) {
    const at::Tensor values = row.tensors.at(name).contiguous();
    text += std::string("| ") + name + ' ' +
            std::to_string(std::hash<std::string_view>()(
                {static_cast<const char*>(values.const_data_ptr()), values.nbytes()}));
  }
  return text;
}

inline std::vector<std::string> rows_text(const std::vector<Row>& rows) {
  std::vector<std::string> texts;
  for (const Row& row : rows) texts.push_back(row_text(row));
  return texts;
}

}  // namespace keyseat::testing
