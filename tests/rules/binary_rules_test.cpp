// Rules about the files that were built: what they export and what they need.
#include <doctest/doctest.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

// The build folder this test was built in: its executable is BUILD/bin/keyseat_rules_tests.
std::filesystem::path build_dir() {
  return std::filesystem::canonical("/proc/self/exe").parent_path().parent_path();
}

std::vector<std::string> output_lines(const std::string& command) {
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), &pclose);
  REQUIRE(pipe != nullptr);
  std::string text;
  char buffer[4096];
  for (size_t n = 0; (n = fread(buffer, 1, sizeof(buffer), pipe.get())) > 0;)
    text.append(buffer, n);
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<std::filesystem::path> plugin_files() {
  std::vector<std::filesystem::path> files;
  const auto folder = build_dir() / "plugins";
  if (!std::filesystem::exists(folder)) return files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".so") files.push_back(entry.path());
  }
  return files;
}

std::set<std::string> needed_libraries(const std::filesystem::path& file) {
  std::set<std::string> needed;
  for (const std::string& line : output_lines("readelf -d '" + file.string() + "'")) {
    if (line.find("(NEEDED)") == std::string::npos) continue;
    const size_t begin = line.find('[') + 1;
    needed.insert(line.substr(begin, line.find(']') - begin));
  }
  return needed;
}

}  // namespace

TEST_CASE("rule: a plugin exports its manifest and its entry, and nothing else of ours") {
  for (const auto& file : plugin_files()) {
    std::set<std::string> exported;
    for (const std::string& line : output_lines("nm -D --defined-only '" + file.string() + "'")) {
      std::istringstream in(line);
      std::string address, type, name;
      in >> address >> type >> name;
      // Weak and unique symbols (V, W, u) come from LibTorch's inline functions. The sanitizer adds
      // one marker per exported variable.
      const bool strong = type != "V" && type != "W" && type != "u" && type != "v" && type != "w";
      if (name.starts_with("__odr_asan")) continue;
      if (strong || name.find("keyseat_") == 0) exported.insert(name);
    }
    const std::set<std::string> allowed = {"keyseat_plugin_entry", "keyseat_plugin_manifest"};
    CHECK_MESSAGE(exported == allowed, file.filename().string());
  }
}

TEST_CASE("rule: a plugin is never unloaded and ships neither the core nor LibTorch") {
  for (const auto& file : plugin_files()) {
    bool nodelete = false;
    for (const std::string& line : output_lines("readelf -d '" + file.string() + "'")) {
      nodelete = nodelete || line.find("NODELETE") != std::string::npos;
    }
    CHECK_MESSAGE(nodelete, file.filename().string());
    CHECK_MESSAGE(needed_libraries(file).contains("libkeyseat.so"), file.filename().string());
  }
}

TEST_CASE("rule: bin/keyseat needs no LibTorch") {
  const auto needed = needed_libraries(build_dir() / "bin" / "keyseat");
  CHECK_FALSE(needed.empty());
  for (const std::string& library : needed) {
    const bool heavy = library.starts_with("libtorch") || library.starts_with("libc10") ||
                       library.starts_with("libkeyseat") || library.starts_with("libcu");
    CHECK_MESSAGE(!heavy, library);
  }
}

TEST_CASE("rule: the core and the tool need no CUDA library") {
  for (const char* name : {"libkeyseat.so", "libkeyseat_tool.so"}) {
    for (const std::string& library : needed_libraries(build_dir() / "lib" / name)) {
      const bool cuda = library.starts_with("libtorch_cuda") ||
                        library.starts_with("libc10_cuda") || library.starts_with("libcu") ||
                        library.starts_with("libnccl");
      CHECK_MESSAGE(!cuda, std::string(name), " needs ", library);
    }
  }
}
