#include "conversations.h"

namespace keyseat_data_conversations {

using keyseat::Option;
using keyseat::OptionType;
using keyseat::data::Fault;
using keyseat::data::FaultKind;
using keyseat::data::Outcome;
using keyseat::data::Record;

namespace {

class LineRecord final : public Record {
 public:
  LineRecord(std::string key, std::string json, std::string image_root, int64_t max_bytes)
      : key_(std::move(key)),
        json_(std::move(json)),
        image_root_(std::move(image_root)),
        max_bytes_(max_bytes) {}
  std::string key() const override { return key_; }
  std::string json() const override { return json_; }
  Outcome<std::vector<uint8_t>> file(const std::string& name) const override {
    const std::filesystem::path path = std::filesystem::path(image_root_) / name;
    std::error_code error;
    if (!std::filesystem::exists(path, error))
      return Fault{FaultKind::kMissingFile, path.string() + " does not exist"};
    if (!std::filesystem::is_regular_file(path, error))
      return Fault{FaultKind::kUnreadableFile, path.string() + " is no file"};
    const auto size = static_cast<int64_t>(std::filesystem::file_size(path, error));
    if (size > max_bytes_) {
      return Fault{FaultKind::kFileTooLarge,
                   fmt::format("{} has {} bytes, the limit is {}", name, size, max_bytes_)};
    }
    std::vector<uint8_t> bytes(static_cast<size_t>(size));
    std::ifstream in(path, std::ios::binary);
    in.read(reinterpret_cast<char*>(bytes.data()), size);
    if (!in) return Fault{FaultKind::kUnreadableFile, path.string() + " cannot be read"};
    return bytes;
  }

 private:
  std::string key_, json_, image_root_;
  int64_t max_bytes_;
};

}  // namespace

keyseat::OptionSchema Conversations::options() {
  keyseat::OptionSchema schema = {
      Option("path", OptionType::kPath).required().doc("A JSONL file, one conversation per line."),
      Option("image_root", OptionType::kPath)
          .optional()
          .doc("Folder to which image names are relative; the folder of `path` where unset."),
  };
  const auto common = keyseat::data::conversation_options();
  schema.insert(schema.end(), common.begin(), common.end());
  return schema;
}

keyseat::Problems Conversations::validate(const keyseat::Options& options) {
  return keyseat::data::validate_packed_data(options);
}

Conversations::Conversations(const keyseat::Options& options, const keyseat::PluginHost&)
    : ConversationData(options), path_(options.get_string("path")) {
  image_root_ = options.has("image_root") ? options.get_string("image_root")
                                          : std::filesystem::path(path_).parent_path().string();
}

Conversations::~Conversations() { stop_loading(); }

keyseat::Problems Conversations::open_source_() {
  std::ifstream in(path_, std::ios::binary);
  if (!in || !std::filesystem::is_regular_file(path_)) {
    return {{keyseat::Code::kR7File,
             {path_, 0, 0},
             "cannot read the file",
             std::strerror(errno),
             "Check data.options.path."}};
  }
  std::string line;
  int64_t offset = 0, number = 0;
  while (std::getline(in, line)) {
    ++number;
    const auto size = static_cast<int64_t>(line.size());
    if (line.find_first_not_of(" \t\r") != std::string::npos)
      lines_.push_back({offset, size, number});
    offset += size + 1;
  }
  if (lines_.empty())
    return {{keyseat::Code::kR6Data, {path_, 0, 0}, "the file holds no conversation", "", ""}};
  return {};
}

std::string Conversations::key_(int64_t id) const {
  return fmt::format("{}:{}", path_, lines_.at(static_cast<size_t>(id)).number);
}

Outcome<std::unique_ptr<Record>> Conversations::record_(int64_t id) const {
  const Line& line = lines_.at(static_cast<size_t>(id));
  std::string json(static_cast<size_t>(line.size), '\0');
  std::ifstream in(path_, std::ios::binary);
  in.seekg(line.offset);
  in.read(json.data(), line.size);
  if (!in) return Fault{FaultKind::kUnreadableFile, "the line cannot be read any more"};
  return std::unique_ptr<Record>(
      std::make_unique<LineRecord>(key_(id), std::move(json), image_root_,
                                   ConversationData::options().get_int("max_image_bytes")));
}

}  // namespace keyseat_data_conversations
