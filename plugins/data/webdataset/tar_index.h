// Where the members of an uncompressed tar file lie, so that samples can be read in any order.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "keyseat/data/fault.h"
#include "keyseat/status.h"

namespace keyseat_data_webdataset {

struct TarMember {
  int64_t offset = 0, size = 0;  // bytes of the content
};

class TarShard {
 public:
  // Reads all headers. R7: cannot be read; R6: not a tar file, compressed, or cut.
  static keyseat::Result<TarShard> open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::map<std::string, TarMember>& members() const { return members_; }
  // Thread-safe.
  keyseat::data::Outcome<std::vector<uint8_t>> read(const std::string& member) const;

 private:
  std::string path_;
  std::map<std::string, TarMember> members_;
};

}  // namespace keyseat_data_webdataset
