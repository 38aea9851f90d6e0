#pragma once
// Runs of bin/keyseat on sources that a test made.

#include <sys/wait.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "data/data_fixture.h"
#include "keyseat/data/image.h"

namespace keyseat::testing {

struct CommandResult {
  int status = -1;
  std::string output, errors;  // stdout, stderr
};

inline std::string text_of(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline CommandResult keyseat_command(const TempFolder& folder,
                                     const std::vector<std::string>& arguments) {
  const auto bin = std::filesystem::canonical("/proc/self/exe").parent_path() / "keyseat";
  std::string command = "timeout 300 '" + bin.string() + "'";
  for (const std::string& argument : arguments) command += " '" + argument + "'";
  command += " 2>'" + folder.path() + "/stderr'";
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  CommandResult result;
  char buffer[1 << 14];
  for (size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    result.output.append(buffer, n);
  const int status = pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  result.errors = text_of(folder.path() + "/stderr");
  return result;
}

// A configuration of a short run of the tiny model; `data` is the text of [data.options].
inline std::string write_config(const TempFolder& folder, const std::string& plugin,
                                const std::string& data) {
  const std::string top = std::filesystem::current_path().string();
  return folder.write("run.toml",
                      "[run]\nname = \"data\"\ndir = \"run\"\nsteps = 2\nseed = 1\n"
                      "device = \"cpu\"\nprecision = \"fp32\"\nthreads = 1\n"
                      "[model]\nbase = \"" +
                          top +
                          "/configs/models/qwen3_vl_moe_tiny.toml\"\n"
                          "[strategy]\nplugin = \"single\"\n"
                          "[dispatcher]\nplugin = \"local\"\n"
                          "[optimizer]\nplugin = \"adamw\"\n"
                          "[data]\nplugin = \"" +
                          plugin + "\"\n[data.options]\ntokenizer = \"" + top +
                          "/configs/data/tokenizer\"\n" + data);
}

// The lines of metrics.jsonl that report a step.
inline std::vector<nlohmann::json> steps_of(const TempFolder& folder, const std::string& run) {
  std::ifstream stream(folder.path() + "/" + run + "/metrics.jsonl");
  std::vector<nlohmann::json> steps;
  for (std::string line; std::getline(stream, line);) {
    auto parsed = nlohmann::json::parse(line);
    if (parsed.contains("loss")) steps.push_back(std::move(parsed));
  }
  return steps;
}

// A PNG file of that size; its pixels depend on `seed`.
inline std::string png_of(int64_t height, int64_t width, uint32_t seed = 1) {
  data::Image image{height, width, {}};
  for (int64_t i = 0; i < 3 * height * width; ++i)
    image.rgb.push_back(static_cast<uint8_t>((seed = seed * 1664525 + 1013904223) >> 24));
  const std::vector<uint8_t> bytes = data::encode_png(image);
  return {bytes.begin(), bytes.end()};
}

}  // namespace keyseat::testing
