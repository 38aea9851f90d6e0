// Data made of chat records with image files: from shards of records to packed samples. Plugins add
// what a shard looks like.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "keyseat/data/packed_data.h"
#include "keyseat/data/shard.h"

namespace keyseat::data {

// path, weights, tokenizer, add_vision_id, augment, blank_images, limits of images and videos,
// index folder; and those of packed_data_options().
KEYSEAT_API OptionSchema conversation_options();
KEYSEAT_API Problems validate_conversations(const Options& options);

class KEYSEAT_API ConversationData : public PackedData {
 public:
  ~ConversationData() override;
  std::string decode(const std::vector<int64_t>& tokens) const final;
  std::string token_text(int64_t id) const final;
  int64_t end_token_id() const final;
  std::vector<ShardIndex> index() const final;

 protected:
  explicit ConversationData(const Options& options);
  // What lies where in a shard; thread-safe. R7: cannot be read; R6: no such shard at all.
  virtual Result<ShardListing> list_(const std::string& path) const = 0;
  // Ending of the shards that are looked for where `path` names a folder: ".tar".
  virtual std::string ending_() const = 0;
  // The folder of the files that records of this shard name; nothing: they lie inside the shard.
  virtual std::optional<std::string> file_folder_(const std::string& shard) const = 0;

 private:
  struct Source;  // the shards, as they were opened
  Problems open_(const DataFacts& facts) final;
  int64_t size_() const final;
  std::vector<SourceShare> sources_() const final;
  Outcome<Sample> load_(int64_t id, int64_t pass) const final;
  Outcome<Sample> load_prompt_(int64_t id) const final;
  Outcome<SampleSize> measure_(int64_t id) const final;
  std::vector<std::optional<SampleSize>> measure_all_() const final;
  std::string key_(int64_t id) const final;
  Problems open_shards(const DataFacts& facts, const std::string& index_key);
  Result<ShardListing> list_with_cut(const std::string& path) const;

  std::unique_ptr<Source> source_;
};

}  // namespace keyseat::data
