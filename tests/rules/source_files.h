#pragma once
// Reads this repository's source files for the rule tests. Tests run in the repository's root.

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace keyseat_rules {

struct SourceFile {
  std::string path;  // relative to the root, with forward slashes
  std::vector<std::string> lines;
};

struct Include {
  std::string target;  // what stands between the quotes or brackets
  bool quoted;
  size_t line;
};

// Every file below the folders that hold our own text, in no particular order.
inline std::vector<SourceFile> source_files() {
  std::vector<SourceFile> files;
  for (const char* top : {"framework", "plugins", "sdk", "tests", "tools", ".ci"}) {
    if (!std::filesystem::exists(top)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(top)) {
      const auto extension = entry.path().extension().string();
      const bool is_text = extension == ".cpp" || extension == ".h" || extension == ".cu" ||
                           extension == ".cuh" || extension == ".cmake" || extension == ".sh" ||
                           extension == ".txt" || extension.empty();
      if (!entry.is_regular_file() || !is_text) continue;
      SourceFile file{entry.path().generic_string(), {}};
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) file.lines.push_back(line);
      files.push_back(std::move(file));
    }
  }
  return files;
}

inline bool is_cpp(const SourceFile& file) {
  const std::string_view path = file.path;
  return path.ends_with(".cpp") || path.ends_with(".h") || path.ends_with(".cu") ||
         path.ends_with(".cuh");
}

inline std::vector<Include> includes_of(const SourceFile& file) {
  std::vector<Include> includes;
  for (size_t i = 0; i < file.lines.size(); ++i) {
    const std::string& line = file.lines[i];
    if (!line.starts_with("#include ")) continue;
    const size_t begin = line.find_first_of("<\"");
    const size_t end = line.find_first_of(">\"", begin + 1);
    if (begin == std::string::npos || end == std::string::npos) continue;
    includes.push_back({line.substr(begin + 1, end - begin - 1), line[begin] == '"', i + 1});
  }
  return includes;
}

// "path:line: text", as compilers print it.
inline std::string place(const SourceFile& file, size_t line, const std::string& text) {
  return file.path + ":" + std::to_string(line) + ": " + text;
}

}  // namespace keyseat_rules
