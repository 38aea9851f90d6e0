#pragma once
// Runs bin/keyseat parity of this build and reads what it prints; copies of recorded folders with
// one thing changed.

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "keyseat/safetensors.h"

namespace keyseat_parity {

namespace fs = std::filesystem;
using nlohmann::json;

inline const fs::path kReference = "tests/fixtures/reference";
inline const char* const kCases[] = {"qwen3_vl_moe",       "qwen3_vl_moe_mixed",
                                     "qwen3_vl_moe_video", "qwen3_vl_dense",
                                     "qwen3_moe",          "qwen3_moe_sparse_step"};

struct Outcome {
  int status = -1;
  json report;                         // null where nothing was printed
  std::map<std::string, json> checks;  // by name

  bool passed(const std::string& name) const { return checks.at(name).at("pass").get<bool>(); }
  std::vector<std::string> failed() const {
    std::vector<std::string> names;
    for (const auto& [name, check] : checks) {
      if (!check.at("pass").get<bool>()) names.push_back(name);
    }
    return names;
  }
};

inline std::string quoted(const std::string& text) { return "'" + text + "'"; }

// `ranks`: through keyseat launch where there are several.
inline Outcome run_parity(const fs::path& folder, const std::vector<std::string>& arguments = {},
                          int ranks = 1) {
  const auto bin = fs::canonical("/proc/self/exe").parent_path() / "keyseat";
  std::string command = quoted(bin);
  if (ranks > 1) command += " launch -n " + std::to_string(ranks) + " --";
  command += " parity " + quoted(folder) + " --json";
  for (const std::string& argument : arguments) command += " " + quoted(argument);
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  char buffer[1 << 16];
  for (size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  const int status = pclose(pipe);
  Outcome outcome;
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  outcome.report = json::parse(text, nullptr, false);
  if (!outcome.report.is_object()) {
    outcome.report = json();
    return outcome;
  }
  for (const json& check : outcome.report.at("checks"))
    outcome.checks[check.at("name").get<std::string>()] = check;
  return outcome;
}

// A copy of a recorded folder, removed at the end.
class Copy {
 public:
  explicit Copy(const fs::path& folder)
      : path_(fs::temp_directory_path() / ("keyseat_parity_" + std::to_string(::getpid())) /
              folder.filename()) {
    fs::remove_all(path_);
    fs::create_directories(path_.parent_path());
    fs::copy(folder, path_, fs::copy_options::recursive);
  }
  ~Copy() { fs::remove_all(path_.parent_path()); }
  Copy(const Copy&) = delete;
  const fs::path& path() const { return path_; }

  using Change = std::function<void(const std::string& name, at::Tensor& tensor)>;
  // Rewrites a safetensors file; `change` sees a copy of every tensor and may leave it undefined.
  void rewrite(const std::string& file, const Change& change) const {
    const std::string path = path_ / file;
    std::vector<std::pair<std::string, at::Tensor>> tensors;
    {
      const auto reader = keyseat::SafetensorsReader::open(path).value_or_throw();
      for (const std::string& name : reader.names()) {
        at::Tensor tensor = reader.tensor(name).clone();
        change(name, tensor);
        if (tensor.defined()) tensors.emplace_back(name, tensor);
      }
    }
    keyseat::write_safetensors(path, tensors);
  }

 private:
  fs::path path_;
};

}  // namespace keyseat_parity
