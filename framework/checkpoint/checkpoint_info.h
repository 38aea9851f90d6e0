// checkpoint.json: what a checkpoint is, apart from its tensors. It is written last, so a folder
// without it is no checkpoint.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "keyseat/status.h"

namespace keyseat::checkpoint {

inline constexpr const char* kInfoFile = "checkpoint.json";
inline constexpr int kFormat = 1;

struct CheckpointFile {
  std::string name;
  int64_t bytes = 0;
  std::string xxh3;  // 128 bits, hexadecimal
};

struct CheckpointInfo {
  int64_t next_step = 0;                    // the first step that is not in it
  int64_t cursor = 0;                       // of the data, before that step
  std::map<std::string, int64_t> updates;   // by block: optimizer steps so far
  std::map<std::string, std::string> keys;  // of the configuration, that a resumed run must share
  // Of the data so far: reason -> count, example.
  std::map<std::string, std::pair<int64_t, std::string>> failures;
  std::vector<CheckpointFile> files;
};

std::string info_json(const CheckpointInfo& info);
// Problems: R6 where the file is none of ours or of a later format, R7 where it cannot be read.
Result<CheckpointInfo> read_info(const std::string& folder);

}  // namespace keyseat::checkpoint
