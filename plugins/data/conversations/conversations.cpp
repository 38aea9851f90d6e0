#include "conversations.h"

namespace keyseat_data_conversations {

using keyseat::Code;
using keyseat::Option;
using keyseat::OptionType;
using keyseat::Problem;
using keyseat::Result;
using keyseat::data::ShardListing;

keyseat::OptionSchema Conversations::options() {
  keyseat::OptionSchema schema = {
      Option("image_root", OptionType::kPath)
          .optional()
          .doc("Folder to which names of images and frames are relative; the folder of the JSONL "
               "file where unset."),
  };
  const auto common = keyseat::data::conversation_options();
  schema.insert(schema.end(), common.begin(), common.end());
  return schema;
}

keyseat::Problems Conversations::validate(const keyseat::Options& options) {
  return keyseat::data::validate_conversations(options);
}

Conversations::Conversations(const keyseat::Options& options, const keyseat::PluginHost&)
    : ConversationData(options) {
  if (options.has("image_root")) image_root_ = options.get_string("image_root");
}

Conversations::~Conversations() { stop_loading(); }

std::optional<std::string> Conversations::file_folder_(const std::string& shard) const {
  if (!image_root_.empty()) return image_root_;
  return std::filesystem::path(shard).parent_path().string();
}

// Records are named by the numbers of their lines, from 1; blank lines are none.
Result<ShardListing> Conversations::list_(const std::string& path) const {
  std::ifstream in(path, std::ios::binary);
  if (!in || !std::filesystem::is_regular_file(path)) {
    return Problem{Code::kR7File,
                   {path, 0, 0},
                   "cannot read the file",
                   std::strerror(errno),
                   "Check data.options.path."};
  }
  ShardListing listing;
  std::string line;
  int64_t offset = 0, number = 0;
  while (std::getline(in, line)) {
    ++number;
    const auto size = static_cast<int64_t>(line.size());
    if (line.find_first_not_of(" \t\r") != std::string::npos)
      listing.records.push_back({std::to_string(number), offset, size});
    offset += size + 1;
  }
  if (listing.records.empty())
    return Problem{Code::kR6Data, {path, 0, 0}, "the file holds no conversation", "", ""};
  return listing;
}

}  // namespace keyseat_data_conversations
