#include "data/source_paths.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>

namespace keyseat::data {

Result<std::vector<std::string>> shards_of(const std::string& path, const std::string& ending) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<std::string> found;
  if (fs::is_directory(path, error)) {
    for (const auto& entry : fs::directory_iterator(path, error)) {
      if (entry.is_regular_file(error) && entry.path().string().ends_with(ending))
        found.push_back(entry.path().string());
    }
  } else if (fs::exists(path, error)) {
    found.push_back(path);
  } else if (path.find_first_of("*?[") != std::string::npos) {
    glob_t matches{};
    if (::glob(path.c_str(), 0, nullptr, &matches) == 0)
      found.assign(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
    ::globfree(&matches);
  }
  std::sort(found.begin(), found.end());
  if (!found.empty()) return found;
  return Problem{Code::kR7File,
                 {path, 0, 0},
                 "there is no such shard",
                 "a path is a file, a folder of *" + ending + " files, or a pattern",
                 "Check data.options.path."};
}

}  // namespace keyseat::data
