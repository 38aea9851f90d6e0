#include "checkpoint/checkpoint_folder.h"

#include "checkpoint/atomic_file.h"

namespace keyseat::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "step-", kPartial = ".partial";
constexpr const char* kLatest = "latest";

std::string name_of(int64_t next_step) { return fmt::format("{}{:08}", kPrefix, next_step); }

// The steps that a folder name tells, or -1.
int64_t steps_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return -1;
  name.remove_prefix(kPrefix.size());
  if (name.size() < 8 || name.size() > 18) return -1;
  if (!std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return -1;
  return std::stoll(std::string(name));
}

bool is_partial(std::string_view name) {
  if (!name.ends_with(kPartial)) return false;
  name.remove_suffix(kPartial.size());
  return steps_of(name) >= 0;
}

[[noreturn]] void fail(const fs::path& path, const std::string& what, const std::error_code& why) {
  throw Error(Problem{Code::kR7File,
                      {path.string(), 0, 0},
                      what,
                      why.message(),
                      "Check checkpoint.dir, its rights and the free space."});
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) fail(path, "cannot remove it", error);
}

}  // namespace

std::string CheckpointFolder::complete(int64_t next_step) const {
  return (fs::path(path_) / name_of(next_step)).string();
}

std::string CheckpointFolder::partial(int64_t next_step) const {
  return complete(next_step) + std::string(kPartial);
}

std::vector<std::string> CheckpointFolder::all() const {
  std::map<int64_t, std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_, error)) {
    const int64_t steps = steps_of(entry.path().filename().string());
    if (steps >= 0 && fs::exists(entry.path() / kInfoFile)) found[steps] = entry.path().string();
  }
  std::vector<std::string> paths;
  for (const auto& [steps, path] : found) paths.push_back(path);
  return paths;
}

std::string CheckpointFolder::newest() const {
  std::ifstream stream(fs::path(path_) / kLatest);
  std::string name;
  if (std::getline(stream, name) && steps_of(name) >= 0 &&
      fs::exists(fs::path(path_) / name / kInfoFile))
    return (fs::path(path_) / name).string();
  const auto paths = all();
  return paths.empty() ? "" : paths.back();
}

void CheckpointFolder::begin(int64_t next_step) const {
  const fs::path folder = partial(next_step);
  remove_tree(folder);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(folder, "cannot create the folder of a checkpoint", error);
}

void CheckpointFolder::publish(const CheckpointInfo& info) const {
  const std::string from = partial(info.next_step), to = complete(info.next_step);
  write_text_file(from + "/" + kInfoFile, info_json(info));
  flush_to_disk(from);
  // A checkpoint of the same step holds the same state; without its description it is none any
  // more.
  if (fs::exists(to)) {
    remove_tree(fs::path(to) / kInfoFile);
    remove_tree(to);
  }
  std::error_code error;
  fs::rename(from, to, error);
  if (error) fail(to, "cannot give the checkpoint its name", error);
  flush_to_disk(path_);
  write_text_file(path_ + "/" + kLatest, name_of(info.next_step) + "\n");
  flush_to_disk(path_);
}

void CheckpointFolder::prune(int64_t keep) const {
  std::vector<std::string> paths = all();
  const auto kept = static_cast<size_t>(keep);
  for (size_t i = 0; keep > 0 && i + kept < paths.size(); ++i) {
    // The description goes first: a half-deleted checkpoint must not look like one.
    remove_tree(fs::path(paths[i]) / kInfoFile);
    remove_tree(paths[i]);
  }
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_, error)) {
    const std::string name = entry.path().filename().string();
    const bool undescribed = steps_of(name) >= 0 && !fs::exists(entry.path() / kInfoFile);
    if (is_partial(name) || undescribed) remove_tree(entry.path());
  }
}

void CheckpointFolder::remove_all() const {
  std::error_code error;
  fs::remove(fs::path(path_) / kLatest, error);
  for (const auto& entry : fs::directory_iterator(path_, error)) {
    const std::string name = entry.path().filename().string();
    if (is_partial(name) || steps_of(name) >= 0) remove_tree(entry.path());
  }
}

}  // namespace keyseat::checkpoint
