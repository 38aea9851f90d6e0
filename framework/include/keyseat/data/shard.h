// Shards: files that hold many records.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace keyseat::data {

// A stretch of bytes in a shard, under a name.
struct Extent {
  std::string name;
  int64_t offset = 0, size = 0;  // bytes
  bool operator==(const Extent&) const = default;
};

// Where everything of a shard lies.
struct ShardListing {
  std::vector<Extent> records;  // JSON of every sample, in source order; the name is its key
  std::vector<Extent> files;    // files inside of the shard, sorted by name
  // Not empty: the shard ends before it is complete; says where. What lies before that is listed.
  std::string cut;
};

}  // namespace keyseat::data
