// Conventions of the source text that the compiler does not check.
#include <doctest/doctest.h>

#include "tests/rules/source_files.h"

using namespace keyseat_rules;

TEST_CASE("rule: a file has fewer than 600 lines") {
  for (const SourceFile& file : source_files()) {
    CHECK_MESSAGE(file.lines.size() < 600, file.path, " has ", file.lines.size(), " lines");
  }
}

TEST_CASE("rule: the umbrella headers of LibTorch are never included") {
  // torch/torch.h costs 55 s and 1.5 GB per file.
  for (const SourceFile& file : source_files()) {
    if (!is_cpp(file)) continue;
    for (const Include& include : includes_of(file)) {
      const bool umbrella = include.target == "torch/torch.h" || include.target == "ATen/ATen.h" ||
                            include.target == "torch/all.h" ||
                            include.target == "torch/extension.h";
      CHECK_MESSAGE(!umbrella, place(file, include.line, include.target));
    }
  }
}

TEST_CASE("rule: the framework includes no plugin, and a plugin no other plugin") {
  for (const SourceFile& file : source_files()) {
    if (!is_cpp(file) || file.path.starts_with("tests/")) continue;
    for (const Include& include : includes_of(file)) {
      if (!include.target.starts_with("plugins/")) continue;
      const std::string folder = file.path.substr(0, file.path.find_last_of('/') + 1);
      const bool own = file.path.starts_with("plugins/") && include.target.starts_with(folder);
      CHECK_MESSAGE(own, place(file, include.line, include.target));
    }
  }
}

TEST_CASE("rule: the framework names no plugin, but for the defaults of a configuration") {
  for (const auto& kind : std::filesystem::directory_iterator("plugins")) {
    if (!kind.is_directory()) continue;
    for (const auto& plugin : std::filesystem::directory_iterator(kind.path())) {
      const std::string kind_name = kind.path().filename().string();
      const std::string name = plugin.path().filename().string();
      std::vector<std::string> forms = {'"' + kind_name + '/' + name + '"',
                                        "keyseat_" + kind_name + '_' + name};
      if (name != "none") forms.push_back('"' + name + '"');  // that one is a word of English, too
      for (const SourceFile& file : source_files()) {
        const bool tests = file.path.ends_with("_test.cpp") ||
                           file.path.ends_with("/testing.cpp") || file.path.ends_with("_fixture.h");
        if (!is_cpp(file) || !file.path.starts_with("framework/") || tests ||
            file.path == "framework/config/defaults.cpp") {
          continue;
        }
        for (size_t i = 0; i < file.lines.size(); ++i) {
          const std::string code = file.lines[i].substr(0, file.lines[i].find("//"));
          for (const std::string& form : forms) {
            CHECK_MESSAGE(code.find(form) == std::string::npos, place(file, i + 1, form));
          }
        }
      }
    }
  }
}

TEST_CASE("rule: a plugin includes of Keyseat only its public headers") {
  for (const SourceFile& file : source_files()) {
    if (!is_cpp(file) || !file.path.starts_with("plugins/") || file.path.ends_with("_test.cpp")) {
      continue;
    }
    const std::filesystem::path folder = std::filesystem::path(file.path).parent_path();
    for (const Include& include : includes_of(file)) {
      if (!include.quoted) continue;
      const bool allowed = include.target.starts_with("keyseat/") ||
                           include.target.starts_with("plugins/") ||
                           std::filesystem::exists(folder / include.target);
      CHECK_MESSAGE(allowed, place(file, include.line, include.target));
    }
  }
}

TEST_CASE("rule: only framework/plugin touches Boost.DLL, and import.hpp is never used") {
  for (const SourceFile& file : source_files()) {
    if (!is_cpp(file)) continue;
    for (const Include& include : includes_of(file)) {
      if (!include.target.starts_with("boost/dll")) continue;
      CHECK_MESSAGE(file.path.starts_with("framework/plugin/"),
                    place(file, include.line, include.target));
      CHECK_MESSAGE(include.target != "boost/dll/import.hpp",
                    place(file, include.line, include.target));
    }
  }
}

TEST_CASE("rule: what runs without LibTorch includes none of it") {
  for (const SourceFile& file : source_files()) {
    const bool torch_free =
        file.path.starts_with("framework/base/") || file.path.starts_with("framework/errors/") ||
        file.path.starts_with("framework/plugin/files/") ||
        file.path.starts_with("framework/config/") ||
        file.path.starts_with("tools/keyseat/light/") || file.path == "tools/keyseat/main.cpp";
    if (!is_cpp(file) || !torch_free || file.path.ends_with("_test.cpp")) continue;
    for (const Include& include : includes_of(file)) {
      const bool torch = include.target.starts_with("torch/") ||
                         include.target.starts_with("ATen/") || include.target.starts_with("c10/");
      CHECK_MESSAGE(!torch, place(file, include.line, include.target));
    }
  }
}

TEST_CASE("rule: headers are guarded by #pragma once") {
  for (const SourceFile& file : source_files()) {
    // NAME-inl.h is included once per SIMD target, by design.
    if (!file.path.ends_with(".h") || file.path.ends_with("-inl.h")) continue;
    bool guarded = false;
    for (const std::string& line : file.lines) guarded = guarded || line == "#pragma once";
    CHECK_MESSAGE(guarded, file.path);
  }
}

TEST_CASE("rule: every plugin folder has its five files") {
  if (!std::filesystem::exists("plugins")) return;
  for (const auto& kind : std::filesystem::directory_iterator("plugins")) {
    if (!kind.is_directory()) continue;
    for (const auto& plugin : std::filesystem::directory_iterator(kind.path())) {
      const std::string name = plugin.path().filename().string();
      for (const std::string& file : {std::string("CMakeLists.txt"), std::string("plugin.cpp"),
                                      std::string("README.md"), name + ".h", name + "_test.cpp"}) {
        CHECK_MESSAGE(std::filesystem::exists(plugin.path() / file),
                      (plugin.path() / file).generic_string(), " is missing");
      }
    }
  }
}
