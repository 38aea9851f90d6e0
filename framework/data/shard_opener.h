// Opens the shards of a source with their indexes: reads a stored one where it fits, else lists and
// measures the shard and stores the result.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/shard_index.h"
#include "data/shard_reader.h"
#include "keyseat/interfaces/data.h"

namespace keyseat::data {

struct OpenedShard {
  IndexedShard shard;  // sizes are empty where they were not asked for and no index was stored
  ShardIndex report;
};

struct OpenerSettings {
  std::string key;           // see write_index()
  std::string index_folder;  // where indexes go that cannot lie beside their shard; may be empty
  bool measure = true;       // false: sizes are not needed
  bool rebuild = false;      // a stored index is not read
  int64_t threads = 1;
  int64_t first = 0;  // shard to begin with, so that ranks begin with different ones
  int64_t max_file_bytes = 0;
};

class ShardOpener {
 public:
  using List = std::function<Result<ShardListing>(const std::string& path)>;
  using Folder = std::function<std::optional<std::string>(const std::string& path)>;
  // Size of one record; `read` gives the files that it names.
  using Measure = std::function<Outcome<SampleSize>(
      const ShardReader& shard, const Extent& record,
      const std::function<Outcome<FileBytes>(const std::string& name)>& read)>;

  ShardOpener(OpenerSettings settings, List list, Folder folder, Measure measure)
      : settings_(std::move(settings)),
        list_(std::move(list)),
        folder_(std::move(folder)),
        measure_(std::move(measure)) {}

  // In the order of the paths; a shard that is none becomes a problem. Processes that open the same
  // shards at once share the work: each shard is indexed by one of them.
  std::vector<OpenedShard> open(const std::vector<std::string>& paths, Problems& problems) const;

 private:
  Result<OpenedShard> open_one(const std::string& path, int64_t threads) const;
  bool read_stored(const std::string& path, OpenedShard& opened) const;
  Result<OpenedShard> list_only(const std::string& path) const;
  std::optional<Problem> build(const std::string& path, int64_t threads, OpenedShard& opened) const;
  std::string store(const std::string& path, OpenedShard& opened) const;
  std::vector<std::string> places(const std::string& path) const;

  OpenerSettings settings_;
  List list_;
  Folder folder_;
  Measure measure_;
};

}  // namespace keyseat::data
