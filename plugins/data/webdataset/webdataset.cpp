#include "webdataset.h"

namespace keyseat_data_webdataset {

using keyseat::Option;
using keyseat::OptionType;
using keyseat::data::Fault;
using keyseat::data::FaultKind;
using keyseat::data::Outcome;
using keyseat::data::Record;

namespace {

// "a/b/000123.left.jpg" -> "a/b/000123"
std::string key_of(const std::string& name) {
  const size_t slash = name.find_last_of('/');
  return name.substr(0, name.find('.', slash == std::string::npos ? 0 : slash + 1));
}

class TarRecord final : public Record {
 public:
  TarRecord(const TarShard& shard, std::string key, std::string json)
      : shard_(shard), key_(std::move(key)), json_(std::move(json)) {}
  std::string key() const override {
    return std::filesystem::path(shard_.path()).filename().string() + ":" + key_;
  }
  std::string json() const override { return json_; }
  // Names are those of members, or of members in the record's own folder.
  Outcome<std::vector<uint8_t>> file(const std::string& name) const override {
    const std::string beside = (std::filesystem::path(key_).parent_path() / name).string();
    return shard_.read(shard_.members().count(name) > 0 ? name : beside);
  }

 private:
  const TarShard& shard_;
  std::string key_, json_;
};

}  // namespace

keyseat::OptionSchema Webdataset::options() {
  keyseat::OptionSchema schema = {
      Option("path", OptionType::kPathList).required().doc("Tar shards, in order.")};
  const auto common = keyseat::data::conversation_options();
  schema.insert(schema.end(), common.begin(), common.end());
  return schema;
}

keyseat::Problems Webdataset::validate(const keyseat::Options& options) {
  return keyseat::data::validate_packed_data(options);
}

Webdataset::Webdataset(const keyseat::Options& options, const keyseat::PluginHost&)
    : ConversationData(options) {}

Webdataset::~Webdataset() { stop_loading(); }

keyseat::Problems Webdataset::open_source_() {
  keyseat::Problems problems;
  for (const std::string& path : ConversationData::options().get_string_list("path")) {
    auto shard = TarShard::open(path);
    if (!shard) {
      problems.push_back(shard.problem());
      continue;
    }
    shards_.push_back(std::move(shard).value());
    std::map<int64_t, std::string> in_file_order;  // the order of the shard is the source order
    for (const auto& [name, member] : shards_.back().members()) {
      if (name.ends_with(".json")) in_file_order[member.offset] = key_of(name);
    }
    if (in_file_order.empty()) {
      problems.push_back({keyseat::Code::kR6Data,
                          {path, 0, 0},
                          "the shard holds no KEY.json",
                          "",
                          "Every sample needs one."});
    }
    for (const auto& [offset, key] : in_file_order) samples_.push_back({shards_.size() - 1, key});
  }
  return problems;
}

std::string Webdataset::key_(int64_t id) const {
  const Entry& entry = samples_.at(static_cast<size_t>(id));
  return std::filesystem::path(shards_[entry.shard].path()).filename().string() + ":" + entry.key;
}

Outcome<std::unique_ptr<Record>> Webdataset::record_(int64_t id) const {
  const Entry& entry = samples_.at(static_cast<size_t>(id));
  const TarShard& shard = shards_[entry.shard];
  auto json = shard.read(entry.key + ".json");
  if (!json) return json.fault();
  return std::unique_ptr<Record>(std::make_unique<TarRecord>(
      shard, entry.key, std::string(json.value().begin(), json.value().end())));
}

}  // namespace keyseat_data_webdataset
