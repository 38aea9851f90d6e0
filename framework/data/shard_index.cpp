#include "data/shard_index.h"

#include <ATen/ops/empty.h>
#include <xxhash.h>

#include "keyseat/safetensors.h"

namespace keyseat::data {

namespace {

constexpr const char* kFormat = "keyseat data index 1";
constexpr int kStampFields = 5;

using Columns = std::map<std::string, std::vector<int64_t>>;
using Texts = std::map<std::string, std::string>;  // names, each ended by a zero byte

at::Tensor to_tensor(const void* data, size_t count, at::ScalarType dtype) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(count)}, at::TensorOptions(dtype));
  if (count > 0) std::memcpy(tensor.data_ptr(), data, count * c10::elementSize(dtype));
  return tensor;
}

std::string checksum(const Columns& columns, const Texts& texts, const Texts& metadata) {
  std::string all;
  const auto add = [&](const std::string& name, const void* data, size_t bytes) {
    all += fmt::format("{}:{}:{:016x};", name, bytes, XXH3_64bits(data, bytes));
  };
  for (const auto& [name, values] : columns) add(name, values.data(), values.size() * 8);
  for (const auto& [name, text] : texts) add(name, text.data(), text.size());
  for (const auto& [name, text] : metadata) {
    if (name != "checksum") add(name, text.data(), text.size());
  }
  return fmt::format("{:016x}", XXH3_64bits(all.data(), all.size()));
}

void add_extents(const std::string& prefix, const std::vector<Extent>& extents, Columns& columns,
                 Texts& texts) {
  std::string& names = texts[prefix + ".names"];
  auto& offsets = columns[prefix + ".offset"];
  auto& sizes = columns[prefix + ".size"];
  for (const Extent& extent : extents) {
    names += extent.name + '\0';
    offsets.push_back(extent.offset);
    sizes.push_back(extent.size);
  }
}

std::vector<std::string> split(const std::string& names) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < names.size();) {
    const size_t end = std::min(names.find('\0', begin), names.size());
    parts.push_back(names.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Extents of the columns; false where they contradict each other or the size of the shard.
bool get_extents(const std::string& prefix, int64_t shard_bytes, Columns& columns, Texts& texts,
                 std::vector<Extent>& extents) {
  const std::vector<std::string> names = split(texts[prefix + ".names"]);
  const auto& offsets = columns[prefix + ".offset"];
  const auto& sizes = columns[prefix + ".size"];
  if (offsets.size() != names.size() || sizes.size() != names.size()) return false;
  for (size_t i = 0; i < names.size(); ++i) {
    const bool inside = offsets[i] >= 0 && sizes[i] >= 0 && sizes[i] <= shard_bytes - offsets[i];
    if (!inside) return false;
    extents.push_back({names[i], offsets[i], sizes[i]});
  }
  return true;
}

// Reads the columns of a file; an empty text where all is well.
std::string load(const std::string& file, Columns& columns, Texts& texts, Texts& metadata) {
  const auto opened = SafetensorsReader::open(file);
  if (!opened) return "the stored index is damaged";
  const SafetensorsReader& reader = opened.value();
  for (const std::string& name : reader.names()) {
    const at::Tensor values = reader.tensor(name);
    if (values.scalar_type() == at::kLong) {
      const auto* data = values.const_data_ptr<int64_t>();
      columns[name].assign(data, data + values.numel());
    } else if (values.scalar_type() == at::kByte) {
      texts[name].assign(reinterpret_cast<const char*>(values.const_data_ptr<uint8_t>()),
                         static_cast<size_t>(values.numel()));
    }
  }
  metadata = reader.metadata();
  if (metadata["format"] != kFormat) return "the stored index has another format";
  if (metadata["checksum"] != checksum(columns, texts, metadata))
    return "the stored index is damaged";
  return "";
}

bool get_sizes(Columns& columns, IndexedShard& shard) {
  const auto &tokens = columns["tokens"], &patches = columns["patches"],
             &images = columns["images"];
  const size_t count = shard.listing.records.size();
  if (tokens.size() != count || patches.size() != count || images.size() != count) return false;
  for (size_t i = 0; i < count; ++i) {
    shard.sizes.emplace_back();
    if (tokens[i] >= 0) shard.sizes.back() = SampleSize{tokens[i], patches[i], images[i]};
  }
  return true;
}

}  // namespace

void write_index(const std::string& file, const std::string& key, const IndexedShard& shard) {
  Columns columns;
  Texts texts;
  add_extents("records", shard.listing.records, columns, texts);
  add_extents("files", shard.listing.files, columns, texts);
  for (const auto& size : shard.sizes) {
    columns["tokens"].push_back(size ? size->tokens : -1);
    columns["patches"].push_back(size ? size->patches : 0);
    columns["images"].push_back(size ? size->images : 0);
  }
  for (const auto& [name, stamp] : shard.files) {
    texts["depends.names"] += name + '\0';
    for (const int64_t value :
         {stamp.size, stamp.modified_ns, stamp.changed_ns, stamp.inode, stamp.hash}) {
      columns["depends.stamps"].push_back(value);
    }
  }
  texts["cut"] = shard.listing.cut;  // may hold any bytes, which metadata must not
  Texts metadata = {{"format", kFormat}, {"key", key}, {"written_ns", std::to_string(now_ns())}};
  metadata["checksum"] = checksum(columns, texts, metadata);
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& [name, values] : columns)
    tensors.push_back({name, to_tensor(values.data(), values.size(), at::kLong)});
  for (const auto& [name, text] : texts)
    tensors.push_back({name, to_tensor(text.data(), text.size(), at::kByte)});
  write_safetensors(file, tensors, metadata);
}

StoredIndex read_index(const std::string& file, const std::string& key, const std::string& path,
                       const std::string& folder) {
  StoredIndex stored;
  Columns columns;
  Texts texts, metadata;
  const auto refuse = [&](std::string why) {
    stored.shard.reset();
    stored.refused = std::move(why);
    return stored;
  };
  if (const std::string wrong = load(file, columns, texts, metadata); !wrong.empty())
    return refuse(wrong);
  if (metadata["key"] != key)
    return refuse("the stored index is of another tokenizer, model or set of options");

  const std::vector<std::string> names = split(texts["depends.names"]);
  const auto& stamps = columns["depends.stamps"];
  if (stamps.size() != names.size() * kStampFields) return refuse("the stored index is damaged");
  const int64_t written_ns = std::strtoll(metadata["written_ns"].c_str(), nullptr, 10);
  IndexedShard& shard = stored.shard.emplace();
  for (size_t i = 0; i < names.size(); ++i) {
    const int64_t* field = &stamps[i * kStampFields];
    FileStamp stamp{field[0], field[1], field[2], field[3], field[4]};
    const std::string place =
        names[i].empty() ? path : (std::filesystem::path(folder) / names[i]).string();
    const FileState state = compare(place, stamp, written_ns);
    if (state == FileState::kChanged)
      return refuse(names[i].empty() ? "the shard has changed" : names[i] + " has changed");
    if (state == FileState::kSameContent) {
      const int64_t hash = stamp.hash;
      stamp = take_stamp(place);
      stamp.hash = hash;
      stored.refresh = true;
    }
    shard.files[names[i]] = stamp;
  }
  if (shard.files.count("") == 0) return refuse("the stored index is damaged");
  const int64_t bytes = shard.files[""].size;
  shard.listing.cut = texts["cut"];
  if (!get_extents("records", bytes, columns, texts, shard.listing.records) ||
      !get_extents("files", bytes, columns, texts, shard.listing.files) ||
      !get_sizes(columns, shard)) {
    return refuse("the stored index is damaged");
  }
  return stored;
}

}  // namespace keyseat::data
