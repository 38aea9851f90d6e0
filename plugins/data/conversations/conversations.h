// A JSONL file, one {"messages": [...]} per line; image parts name files relative to image_root.
#pragma once

#include <string>
#include <vector>

#include "keyseat/data/conversation_data.h"

namespace keyseat_data_conversations {

class Conversations final : public keyseat::data::ConversationData {
 public:
  static keyseat::OptionSchema options();
  static keyseat::Problems validate(const keyseat::Options& options);
  Conversations(const keyseat::Options& options, const keyseat::PluginHost& host);
  ~Conversations() override;

 protected:
  keyseat::Problems open_source_() override;
  int64_t size_() const override { return static_cast<int64_t>(lines_.size()); }
  std::string key_(int64_t id) const override;
  keyseat::data::Outcome<std::unique_ptr<keyseat::data::Record>> record_(int64_t id) const override;

 private:
  struct Line {
    int64_t offset = 0, size = 0, number = 0;  // bytes; number from 1
  };
  std::string path_, image_root_;
  std::vector<Line> lines_;
};

}  // namespace keyseat_data_conversations
