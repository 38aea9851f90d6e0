// The folder of a run's checkpoints:
//   step-00000100/        a complete one: checkpoint.json, state-RANK-of-WORLD.safetensors
//   step-00000200.partial one that is being written, or was when the run was killed
//   latest                the name of the newest complete one
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_info.h"

namespace keyseat::checkpoint {

class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }

  std::string complete(int64_t next_step) const;  // path of that checkpoint
  std::string partial(int64_t next_step) const;

  // The newest complete checkpoint: what `latest` names; where it names none (the run was killed
  // before its first `latest`), the one with the most steps. Empty where there is none.
  std::string newest() const;
  std::vector<std::string> all() const;  // paths of the complete ones, fewest steps first

  // By one rank. An empty partial folder, whatever lay there before. Error R7.
  void begin(int64_t next_step) const;
  // Writes checkpoint.json, gives the folder its final name, then points `latest` to it. Another
  // checkpoint of this step is replaced.
  void publish(const CheckpointInfo& info) const;
  // Deletes complete ones until the newest `keep` are left (0: all stay), and what was left
  // partial.
  void prune(int64_t keep) const;
  void remove_all() const;  // every checkpoint, complete or partial, and `latest`

 private:
  std::string path_;
};

}  // namespace keyseat::checkpoint
