// JSONL files, one {"messages": [...]} per line; image parts and video frames name files relative
// to image_root.
#pragma once

#include <optional>
#include <string>

#include "keyseat/data/conversation_data.h"

namespace keyseat_data_conversations {

class Conversations final : public keyseat::data::ConversationData {
 public:
  static keyseat::OptionSchema options();
  static keyseat::Problems validate(const keyseat::Options& options);
  Conversations(const keyseat::Options& options, const keyseat::PluginHost& host);
  ~Conversations() override;

 protected:
  keyseat::Result<keyseat::data::ShardListing> list_(const std::string& path) const override;
  std::string ending_() const override { return ".jsonl"; }
  std::optional<std::string> file_folder_(const std::string& shard) const override;

 private:
  std::string image_root_;  // empty: the folder of the shard
};

}  // namespace keyseat_data_conversations
