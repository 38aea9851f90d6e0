#include "checkpoint/training_state.h"

#include "checkpoint/agree.h"
#include "checkpoint/safetensors_stream.h"
#include "comm/gather.h"
#include "keyseat/safetensors.h"

namespace keyseat::checkpoint {

namespace {

constexpr int64_t kMaster = -1;

// One stored tensor: the master or a state of a parameter that its unit owns.
struct Entry {
  int unit = 0, param = 0;
  int64_t state = kMaster;
  std::string name;
  std::vector<int64_t> shape;
  int64_t writer = 0;  // rank
};

int64_t elements(const Entry& entry) { return c10::multiply_integers(entry.shape); }

// In chain order, equal on every rank; each goes to the rank that has the least to write so far.
std::vector<Entry> entries_of(const RunParts& parts) {
  const std::vector<std::string> states = parts.optimizer.state_names();
  std::vector<int64_t> load(parts.world, 0);
  std::vector<Entry> entries;
  const auto add = [&](Entry entry) {
    const auto least = std::min_element(load.begin(), load.end());
    entry.writer = least - load.begin();
    *least += elements(entry);
    entries.push_back(std::move(entry));
  };
  for (int u = 0; u < parts.chain.size(); ++u) {
    const ChainUnit& unit = parts.chain.units()[u];
    const std::vector<ParamSpec>& params = unit.unit->spec().params;
    for (int p = 0; p < static_cast<int>(params.size()); ++p) {
      if (unit.owners[p] != ParamRef{u, p}) continue;
      const std::string& name = unit.param_names[p];
      add({u, p, kMaster, "master/" + name, params[p].shape});
      for (size_t s = 0; unit.trainable && s < states.size(); ++s)
        add({u, p, static_cast<int64_t>(s), states[s] + "/" + name, params[p].shape});
    }
  }
  return entries;
}

std::string file_name(int64_t rank, int64_t world) {
  return fmt::format("state-{:05}-of-{:05}.safetensors", rank, world);
}

// Takes part in every read, whatever happens to the file of this rank.
FileDigest write_share(const RunParts& parts, const std::string& path, Problems& problems) {
  parts.strategy.shards(static_cast<int64_t>(parts.optimizer.state_names().size()));  // allocates
  const std::vector<Entry> entries = entries_of(parts);
  std::vector<PlannedTensor> plan;
  for (const Entry& entry : entries) {
    if (entry.writer == parts.rank) plan.push_back({entry.name, at::kFloat, entry.shape});
  }
  std::unique_ptr<SafetensorsStream> file;
  const auto guarded = [&](const auto& action) {
    if (!problems.empty()) return;
    try {
      action();
    } catch (const Error& error) {
      problems = error.problems();
    }
  };
  guarded([&] {
    file = std::make_unique<SafetensorsStream>(
        path, std::move(plan), std::map<std::string, std::string>{{"format", "keyseat"}});
  });
  for (const Entry& entry : entries) {
    const at::Tensor value = entry.state == kMaster
                                 ? parts.strategy.read_master(entry.unit, entry.param)
                                 : parts.strategy.read_state(entry.unit, entry.param, entry.state);
    if (entry.writer == parts.rank) guarded([&] { file->write(value); });
  }
  FileDigest digest;
  guarded([&] { digest = file->finish(); });
  return digest;
}

// Each rank looks at its share of the files.
Problems file_problems(const RunParts& parts, const std::string& folder,
                       const CheckpointInfo& info) {
  Problems problems;
  for (size_t i = 0; i < info.files.size(); ++i) {
    if (static_cast<int64_t>(i) % parts.world != parts.rank) continue;
    const CheckpointFile& file = info.files[i];
    const std::string path = folder + "/" + file.name;
    try {
      const FileDigest found = digest_of_file(path);
      if (found.bytes == file.bytes && digest_text(found) == file.xxh3) continue;
      const bool cut = found.bytes != file.bytes;
      problems.push_back(
          {Code::kR6Data,
           {path, 0, 0},
           cut ? fmt::format("the file has {} bytes, {} were written", found.bytes, file.bytes)
               : fmt::format("the file has the digest {}, {} was written", digest_text(found),
                             file.xxh3),
           "the checkpoint is damaged",
           "Remove its folder: the run then goes on from the checkpoint before it."});
    } catch (const Error& error) {
      problems.insert(problems.end(), error.problems().begin(), error.problems().end());
    }
  }
  return problems;
}

// All tensors of a checkpoint, whichever file they are in.
class StoredState {
 public:
  StoredState(const std::string& folder, const CheckpointInfo& info) : folder_(folder) {
    for (const CheckpointFile& file : info.files) {
      auto reader = SafetensorsReader::open(folder + "/" + file.name);
      if (!reader) {
        problems_.push_back(reader.problem());
        continue;
      }
      for (const std::string& name : reader.value().names()) tensors_.emplace(name, reader.value());
    }
  }

  const Problems& problems() const { return problems_; }
  bool has(const std::string& name) const { return tensors_.contains(name); }
  at::Tensor tensor(const std::string& name) const { return tensors_.at(name).tensor(name); }

  void check(const Entry& entry) {
    const auto found = tensors_.find(entry.name);
    known_.insert(entry.name);
    if (found == tensors_.end()) return refuse("it has no tensor \"" + entry.name + "\"");
    const auto stored = found->second.shape(entry.name);
    if (stored != entry.shape || found->second.dtype(entry.name) != at::kFloat) {
      refuse(fmt::format("\"{}\" is [{}] of {} in it, [{}] of fp32 in the model", entry.name,
                         fmt::join(stored, ", "), c10::toString(found->second.dtype(entry.name)),
                         fmt::join(entry.shape, ", ")));
    }
  }

  // To be called behind the checks: parameters that the model does not have.
  void check_rest() {
    for (const auto& [name, file] : tensors_) {
      if (name.starts_with("master/") && !known_.contains(name))
        refuse("it has \"" + name + "\", which the model does not have");
    }
  }

 private:
  void refuse(std::string what) {
    problems_.push_back({Code::kR6Data,
                         {folder_, 0, 0},
                         std::move(what),
                         "the checkpoint is of another model",
                         "Resume with the configuration that wrote it."});
  }

  std::string folder_;
  std::map<std::string, SafetensorsReader> tensors_;
  std::set<std::string> known_;
  Problems problems_;
};

// Blocks of which the checkpoint has no optimizer state at all.
std::vector<std::string> stateless_blocks(const RunParts& parts, const std::vector<Entry>& entries,
                                          const StoredState& stored) {
  std::map<std::string, bool> has_state;
  for (const Entry& entry : entries) {
    if (entry.state == kMaster) continue;
    bool& any = has_state[parts.chain.units()[entry.unit].block];
    any = any || stored.has(entry.name);
  }
  std::vector<std::string> blocks;
  for (const auto& [block, any] : has_state) {
    if (!any) blocks.push_back(block);
  }
  return blocks;
}

}  // namespace

std::vector<CheckpointFile> write_state(const RunParts& parts, const std::string& folder) {
  Problems problems;
  const FileDigest own =
      write_share(parts, folder + "/" + file_name(parts.rank, parts.world), problems);
  throw_where_any(problems, parts.comm, parts.world);
  std::vector<CheckpointFile> files;
  const auto all = comm::gather_numbers(
      {own.bytes, static_cast<int64_t>(own.low), static_cast<int64_t>(own.high)}, parts.comm,
      parts.world);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const FileDigest digest{all[rank][0], static_cast<uint64_t>(all[rank][1]),
                            static_cast<uint64_t>(all[rank][2])};
    files.push_back(
        {file_name(static_cast<int64_t>(rank), parts.world), digest.bytes, digest_text(digest)});
  }
  return files;
}

std::vector<std::string> read_state(const RunParts& parts, const std::string& folder,
                                    const CheckpointInfo& info) {
  throw_where_any(file_problems(parts, folder, info), parts.comm, parts.world);
  StoredState stored(folder, info);
  throw_where_any(stored.problems(), parts.comm, parts.world);
  const std::vector<Entry> entries = entries_of(parts);
  const std::vector<std::string> stateless = stateless_blocks(parts, entries, stored);
  const auto starts_anew = [&](const Entry& entry) {
    const std::string& block = parts.chain.units()[entry.unit].block;
    return entry.state != kMaster &&
           std::find(stateless.begin(), stateless.end(), block) != stateless.end();
  };
  for (const Entry& entry : entries) {
    if (!starts_anew(entry)) stored.check(entry);
  }
  stored.check_rest();
  throw_where_any(stored.problems(), parts.comm, parts.world);

  // Allocates the states.
  parts.strategy.shards(static_cast<int64_t>(parts.optimizer.state_names().size()));
  for (const Entry& entry : entries) {
    if (starts_anew(entry)) continue;
    const at::Tensor value = stored.tensor(entry.name);
    if (entry.state == kMaster) {
      parts.strategy.write_master(entry.unit, entry.param, value);
    } else {
      parts.strategy.write_state(entry.unit, entry.param, entry.state, value);
    }
  }
  parts.strategy.after_update();  // compute copies follow the masters
  return stateless;
}

}  // namespace keyseat::checkpoint
