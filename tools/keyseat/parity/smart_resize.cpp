// smart_resize.csv: sizes and what they are resized to.
#include <charconv>

#include "keyseat/data/resize.h"
#include "tools/keyseat/parity/compare.h"
#include "tools/keyseat/parity/fixtures.h"

namespace keyseat::tool::parity {

namespace {

constexpr const char* kHeader =
    "height,width,factor,min_pixels,max_pixels,resized_height,resized_width,error";
constexpr size_t kFields = 8;

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char c : line) {
    if (c == ',') {
      fields.emplace_back();
    } else if (c != '\r') {
      fields.back() += c;
    }
  }
  return fields;
}

std::string result_text(const data::Outcome<data::ImageSize>& result) {
  return result ? fmt::format("{},{},", result.value().height, result.value().width)
                : fmt::format(",,{}", data::fault_name(result.fault().kind));
}

}  // namespace

Report smart_resize_parity(const ParityArguments& arguments) {
  namespace fs = std::filesystem;
  const fs::path given = arguments.folder;
  const std::string path =
      fs::is_directory(given) ? (given / "smart_resize.csv").string() : given.string();
  std::ifstream stream(path);
  std::string line;
  std::getline(stream, line);
  if (!line.empty() && line.back() == '\r') line.pop_back();
  if (line != kHeader) refuse_recording(path, "the first line is not the expected header", kHeader);

  Report report;
  report.case_name = "smart_resize";
  for (int row = 2; std::getline(stream, line); ++row) {
    const std::vector<std::string> fields = split(line);
    if (fields.size() != kFields) {
      refuse_recording(path, fmt::format("line {} has {} fields, not 8", row, fields.size()));
    }
    const auto number = [&](size_t i) {
      int64_t value = 0;
      const std::string& text = fields[i];
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error != std::errc() || end != text.data() + text.size()) {
        refuse_recording(path, fmt::format("line {}: \"{}\" is no whole number", row, text));
      }
      return value;
    };
    const auto result =
        data::smart_resize({number(0), number(1)},
                           {.factor = number(2), .min_pixels = number(3), .max_pixels = number(4)});
    const std::string recorded = fields[5] + "," + fields[6] + "," + fields[7];
    const std::string computed = result_text(result);
    report.checks.push_back(exact_check(
        fmt::format("line {}: {} x {}, factor {}", row, fields[0], fields[1], fields[2]),
        computed == recorded ? "" : fmt::format("is \"{}\", recorded \"{}\"", computed, recorded)));
  }
  return report;
}

}  // namespace keyseat::tool::parity
