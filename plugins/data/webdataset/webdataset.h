// Tar shards in the webdataset layout. A sample is the members that share a key (the name up to the
// first dot behind the last slash); KEY.json holds {"messages": [...]}, whose image parts name
// other members.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "keyseat/data/conversation_data.h"
#include "tar_index.h"

namespace keyseat_data_webdataset {

class Webdataset final : public keyseat::data::ConversationData {
 public:
  static keyseat::OptionSchema options();
  static keyseat::Problems validate(const keyseat::Options& options);
  Webdataset(const keyseat::Options& options, const keyseat::PluginHost& host);
  ~Webdataset() override;

 protected:
  keyseat::Problems open_source_() override;
  int64_t size_() const override { return static_cast<int64_t>(samples_.size()); }
  std::string key_(int64_t id) const override;
  keyseat::data::Outcome<std::unique_ptr<keyseat::data::Record>> record_(int64_t id) const override;

 private:
  struct Entry {
    size_t shard = 0;
    std::string key;
  };
  std::vector<TarShard> shards_;
  std::vector<Entry> samples_;
};

}  // namespace keyseat_data_webdataset
