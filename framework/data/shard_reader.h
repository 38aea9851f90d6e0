// Reads records and files of one shard.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "keyseat/data/fault.h"
#include "keyseat/data/shard.h"

namespace keyseat::data {

using FileBytes = std::vector<uint8_t>;

// `size` bytes from `offset` on; none to the end where `size` is negative. Faults: missing_file,
// unreadable_file, empty files are no fault; file_too_large above `most` bytes.
Outcome<FileBytes> read_file(const std::string& path, int64_t offset, int64_t size, int64_t most);

// Name of the record that stands for what a cut shard lost.
inline constexpr const char* kCutRecord = "(cut)";

class ShardReader {
 public:
  // `folder`: where files named by records lie; nothing: inside of the shard.
  ShardReader(std::string path, ShardListing listing, std::optional<std::string> folder,
              int64_t max_file_bytes);

  const std::string& path() const { return path_; }
  const ShardListing& listing() const { return listing_; }
  // "shard.tar:000123", or "folder/train.jsonl:17": what messages call a record.
  std::string key(const Extent& record) const;
  // Thread-safe. Faults: cut_shard, and those of read_file.
  Outcome<std::string> json(const Extent& record) const;
  // A file by the name that the record gives: of a member or of one in the record's own folder, or
  // relative to the folder of the files. Thread-safe.
  Outcome<FileBytes> file(const Extent& record, const std::string& name) const;
  // Path of a file outside of the shard.
  std::optional<std::string> outside_path(const std::string& name) const;

 private:
  const Extent* find(const std::string& name) const;
  std::string path_;
  ShardListing listing_;
  std::optional<std::string> folder_;
  int64_t max_file_bytes_;
};

}  // namespace keyseat::data
