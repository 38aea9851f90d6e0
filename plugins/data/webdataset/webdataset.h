// Tar shards in the webdataset layout. A sample is the members that share a key (the name up to the
// first dot behind the last slash); KEY.json holds {"messages": [...]}, whose image parts and video
// frames name other members.
#pragma once

#include <optional>
#include <string>

#include "keyseat/data/conversation_data.h"

namespace keyseat_data_webdataset {

class Webdataset final : public keyseat::data::ConversationData {
 public:
  static keyseat::OptionSchema options();
  static keyseat::Problems validate(const keyseat::Options& options);
  Webdataset(const keyseat::Options& options, const keyseat::PluginHost& host);
  ~Webdataset() override;

 protected:
  keyseat::Result<keyseat::data::ShardListing> list_(const std::string& path) const override;
  std::string ending_() const override { return ".tar"; }
  std::optional<std::string> file_folder_(const std::string&) const override {
    return std::nullopt;  // inside of the shard
  }
};

}  // namespace keyseat_data_webdataset
