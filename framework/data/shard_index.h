// The index of a shard as a file: what lies where, how large every sample is, and which files that
// depends on. It is a safetensors file of columns, with a checksum over all of it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/file_stamp.h"
#include "keyseat/data/packed_data.h"
#include "keyseat/data/shard.h"

namespace keyseat::data {

struct IndexedShard {
  ShardListing listing;
  std::vector<std::optional<SampleSize>> sizes;  // by record; nothing: cannot be measured
  // The shard itself under the name "", and every file outside of it that was read or missed.
  std::map<std::string, FileStamp> files;
};

// `key`: digest of all that decides sizes beside the files: tokenizer, processor, options.
// Throws R7 where it cannot be written.
void write_index(const std::string& file, const std::string& key, const IndexedShard& shard);

struct StoredIndex {
  std::optional<IndexedShard> shard;
  std::string refused;   // why it is not used: "the shard has changed"; empty where it is
  bool refresh = false;  // fits by content, but the times in it do not: worth writing again
};
// `folder`: of the files outside of the shard at `path`.
StoredIndex read_index(const std::string& file, const std::string& key, const std::string& path,
                       const std::string& folder);

}  // namespace keyseat::data
