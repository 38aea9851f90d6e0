// metrics.jsonl of a run.
#pragma once

#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace keyseat::train {

class MetricsFile {
 public:
  explicit MetricsFile(const std::string& path);  // appends; Error R7
  void write(const nlohmann::json& line);         // flushed to the system
  void flush_to_disk();

 private:
  std::string path_;
  std::ofstream stream_;
};

// Leaves the lines of the steps before `next_step`, as they were when its checkpoint was made: what
// a stopped run wrote behind it would be there twice. Returns how many of these steps have no line.
// The file is replaced as a whole; Error R7.
int64_t keep_steps_before(const std::string& path, int64_t next_step);

}  // namespace keyseat::train
