#include "checkpoint/safetensors_header.h"

#include <nlohmann/json.hpp>

namespace keyseat::checkpoint {

using nlohmann::json;

namespace {

constexpr uint64_t kLargestHeader = 100'000'000;  // the limit of the reference implementation

struct NamedType {
  const char* name;
  at::ScalarType dtype;
};
constexpr NamedType kTypes[] = {
    {"F64", at::kDouble}, {"F32", at::kFloat}, {"F16", at::kHalf},  {"BF16", at::kBFloat16},
    {"I64", at::kLong},   {"I32", at::kInt},   {"I16", at::kShort}, {"I8", at::kChar},
    {"U8", at::kByte},    {"BOOL", at::kBool},
};

Problem broken(const std::string& path, std::string what, std::string why = "") {
  return {Code::kR6Data,
          {path, 0, 0},
          "not a usable safetensors file: " + std::move(what),
          std::move(why),
          "Download or write the file again."};
}

// Notices a key that is given twice, which the parser alone would let pass.
json parse_without_duplicates(std::string_view text, std::string& duplicate) {
  std::vector<std::set<std::string>> seen;
  const json::parser_callback_t watch = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) seen.emplace_back();
    if (event == json::parse_event_t::object_end && !seen.empty()) seen.pop_back();
    if (event == json::parse_event_t::key && !seen.empty()) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!seen.back().insert(key).second) duplicate = key;
    }
    return true;
  };
  return json::parse(text, watch, /*allow_exceptions=*/false);
}

// Parses one entry; the returned text is empty or says what is wrong.
std::string parse_entry(const json& entry, size_t data_begin, size_t file_size, StoredTensor& out) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") ||
      !entry.contains("data_offsets")) {
    return "needs dtype, shape and data_offsets";
  }
  const json& dtype = entry["dtype"];
  const json& shape = entry["shape"];
  const json& offsets = entry["data_offsets"];
  if (!dtype.is_string()) return "dtype is not a string";
  const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const NamedType& t) {
    return dtype.get_ref<const std::string&>() == t.name;
  });
  if (type == std::end(kTypes)) return "has the unknown dtype " + dtype.get<std::string>();
  out.dtype = type->dtype;
  if (!shape.is_array()) return "shape is not a list";
  uint64_t bytes = c10::elementSize(out.dtype);
  for (const json& size : shape) {
    if (!size.is_number_unsigned()) return "shape holds something else than sizes";
    const auto value = size.get<uint64_t>();
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
        __builtin_mul_overflow(bytes, value, &bytes)) {
      return "shape is too large";
    }
    out.shape.push_back(static_cast<int64_t>(value));
  }
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    return "data_offsets is not a pair of sizes";
  }
  const auto begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
  const uint64_t available = file_size - data_begin;
  if (begin > end || end > available) {
    return "lies at bytes " + std::to_string(begin) + " to " + std::to_string(end) + " of " +
           std::to_string(available);
  }
  if (end - begin != bytes) {
    return "has " + std::to_string(end - begin) + " bytes where its shape and dtype need " +
           std::to_string(bytes);
  }
  out.begin = data_begin + begin;
  out.end = data_begin + end;
  return "";
}

// Names two tensors that share bytes, or nothing.
std::string overlap(const std::map<std::string, StoredTensor>& tensors) {
  std::vector<std::pair<size_t, std::pair<size_t, const std::string*>>> ranges;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.end > tensor.begin) ranges.push_back({tensor.begin, {tensor.end, &name}});
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first < ranges[i - 1].second.first) {
      return *ranges[i - 1].second.second + " and " + *ranges[i].second.second + " overlap";
    }
  }
  return "";
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file,
                                                   const std::string& path) {
  if (file.size() < 8)
    return broken(path,
                  "it has " + std::to_string(file.size()) + " bytes, the header alone needs 8");
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  if (length > kLargestHeader || length > file.size() - 8) {
    return broken(path, "its header claims " + std::to_string(length) + " bytes of " +
                            std::to_string(file.size() - 8));
  }
  std::string duplicate;
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, length);
  const json root = parse_without_duplicates(text, duplicate);
  if (root.is_discarded() || !root.is_object())
    return broken(path, "its header is not a JSON object");
  if (!duplicate.empty()) return broken(path, "its header gives \"" + duplicate + "\" twice");

  SafetensorsHeader header;
  for (const auto& [name, entry] : root.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) return broken(path, "__metadata__ is not an object");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) return broken(path, "__metadata__ \"" + key + "\" is not a string");
        header.metadata[key] = value.get<std::string>();
      }
      continue;
    }
    StoredTensor stored;
    if (std::string wrong = parse_entry(entry, 8 + length, file.size(), stored); !wrong.empty()) {
      return broken(path, "tensor \"" + name + "\" " + wrong);
    }
    header.tensors[name] = std::move(stored);
  }
  if (std::string both = overlap(header.tensors); !both.empty()) return broken(path, both);
  return header;
}

const char* safetensors_dtype_name(at::ScalarType dtype) {
  for (const NamedType& type : kTypes) {
    if (type.dtype == dtype) return type.name;
  }
  throw Error(Problem{Code::kR6Data,
                      {},
                      std::string("safetensors has no type for ") + c10::toString(dtype),
                      "",
                      ""});
}

}  // namespace keyseat::checkpoint
