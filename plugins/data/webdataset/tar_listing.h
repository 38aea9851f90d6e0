// Where the members of an uncompressed tar file lie, so that samples can be read in any order.
#pragma once

#include <string>
#include <vector>

#include "keyseat/data/shard.h"
#include "keyseat/status.h"

namespace keyseat_data_webdataset {

struct TarMembers {
  std::vector<keyseat::data::Extent> files;  // regular files, sorted by name
  std::string cut;                           // see ShardListing::cut
};

// Reads all headers. R7: there is no such file; R6: not a tar file, or a compressed one. A tar file
// that ends too early, or is damaged further on, gives the members before that.
keyseat::Result<TarMembers> list_tar(const std::string& path);

}  // namespace keyseat_data_webdataset
