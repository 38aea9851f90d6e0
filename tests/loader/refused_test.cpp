// Files that are refused before any of their code runs, each with its own answer.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstring>

#include <fmt/format.h>

#include "base/sha256.h"
#include "keyseat/interfaces/recompute.h"
#include "tests/loader/plugin_files.h"

using namespace keyseat_loader;
using keyseat::PluginManifest;

namespace {

// The answer to a copy of the good plugin whose manifest was changed.
std::string text_of_edited(const std::function<void(PluginManifest&)>& edit) {
  const TemporaryFolder folder;
  edit_manifest(folder.copy(good_file()), edit);
  return refusal_text(folder.search(), "recompute", "none");
}

std::string text_of_bytes(const std::string& bytes) {
  const TemporaryFolder folder;
  folder.write("keyseat_recompute_none.so", bytes);
  return refusal_text(folder.search(), "recompute", "none");
}

#define CHECK_CONTAINS(text, part) CHECK_MESSAGE((text).find(part) != std::string::npos, text)

}  // namespace

TEST_CASE("P2: empty, text, cut, no manifest, wrong magic, other versions of the manifest") {
  CHECK_CONTAINS(text_of_bytes(""), "P2 ");
  CHECK_CONTAINS(text_of_bytes(""), "it is empty");
  CHECK_CONTAINS(text_of_bytes("#!/bin/sh\necho not a library\n"), "does not start with the ELF");
  const std::string good = read_bytes(good_file());
  CHECK_CONTAINS(text_of_bytes(good.substr(0, 40)), "cut short inside the ELF header");
  CHECK_CONTAINS(text_of_bytes(good.substr(0, good.size() / 2)), "cut short");
  CHECK_CONTAINS(text_of_bytes(good.substr(0, good.size() - 1)), "cut short");

  const TemporaryFolder folder;
  folder.copy(zoo_file("no_manifest"));
  CHECK_CONTAINS(refusal_text(folder.search(), "recompute", "no_manifest"),
                 "a library without a manifest");

  CHECK_CONTAINS(text_of_edited([](PluginManifest& m) { m.magic[0] = 'X'; }), "a wrong magic");
  CHECK_CONTAINS(text_of_edited([](PluginManifest& m) { m.manifest_version = 2; }),
                 "has version 2, this is version 1; it was built with a newer SDK");
  CHECK_CONTAINS(text_of_edited([](PluginManifest& m) { m.struct_size = 7; }), "says 7, expected");
  CHECK_CONTAINS(
      text_of_edited([](PluginManifest& m) { std::memset(m.name, 'n', sizeof(m.name)); }),
      "does not end");
  CHECK_CONTAINS(text_of_edited([](PluginManifest& m) { std::strcpy(m.kind, "gadget"); }),
                 "its kind \"gadget\" does not exist here");
}

TEST_CASE("P2: the file is called otherwise than the plugin") {
  const TemporaryFolder folder;
  folder.copy(good_file(), "keyseat_recompute_full.so");
  const std::string text = refusal_text(folder.search(), "recompute", "full");
  CHECK_CONTAINS(text, "P2 ");
  CHECK_CONTAINS(text, "says recompute/none, so its file must be called keyseat_recompute_none.so");
}

TEST_CASE("P3: each mismatch alone, with the values of both sides") {
  CHECK_CONTAINS(text_of_edited([](PluginManifest& m) { std::strcpy(m.torch_version, "2.10.0"); }),
                 "P3 recompute/none is not usable here: built for LibTorch 2.10.0, this is 2.11.0. "
                 "Rebuild it with the SDK of this version. File: /");
  CHECK_CONTAINS(text_of_edited([](PluginManifest& m) { m.cuda_major = 12; }),
                 "built for CUDA 12, this is 13");
  CHECK_CONTAINS(text_of_edited([](PluginManifest& m) { m.glibcxx_cxx11_abi = 0; }),
                 "built with _GLIBCXX_USE_CXX11_ABI=0, this is 1");
  CHECK_CONTAINS(text_of_edited([](PluginManifest& m) { m.debug_library ^= 1; }), "_GLIBCXX_DEBUG");
  CHECK_CONTAINS(text_of_edited([](PluginManifest& m) { m.interface_abi += 1; }),
                 fmt::format("interface \"recompute\" {}, this is {}", keyseat::kRecomputeAbi + 1,
                             keyseat::kRecomputeAbi));
}

TEST_CASE("P3: a header edited without raising the number is recognised by its hash") {
  const std::string text = text_of_edited([](PluginManifest& m) { m.interface_hash[0] ^= 1; });
  CHECK_CONTAINS(text,
                 fmt::format("has number {} on both sides but other text", keyseat::kRecomputeAbi));
  CHECK_CONTAINS(text, "a header was edited without raising the number");
}

TEST_CASE("P3: three mismatches are one answer") {
  const std::string text = text_of_edited([](PluginManifest& m) {
    std::strcpy(m.torch_version, "2.10.0");
    m.cuda_major = 12;
    m.interface_abi = 99;
  });
  CHECK_CONTAINS(text,
                 fmt::format("built for LibTorch 2.10.0, this is 2.11.0; also built for CUDA 12, "
                             "this is 13; also interface \"recompute\" 99, this is {}",
                             keyseat::kRecomputeAbi));
  CHECK(text.find('\n') == std::string::npos);
}

TEST_CASE("P5: writable by others: the file, its folder; a folder in the place of the file") {
  const TemporaryFolder folder;
  const auto file = folder.copy(good_file());
  REQUIRE(chmod(file.c_str(), 0666) == 0);
  CHECK_CONTAINS(refusal_text(folder.search(), "recompute", "none"), "P5 ");
  CHECK_CONTAINS(refusal_text(folder.search(), "recompute", "none"), "writable by others");
  REQUIRE(chmod(file.c_str(), 0644) == 0);
  REQUIRE(chmod(folder.path().c_str(), 0777) == 0);
  CHECK_CONTAINS(refusal_text(folder.search(), "recompute", "none"), "writable by others");
  REQUIRE(chmod(folder.path().c_str(), 0700) == 0);

  const TemporaryFolder other;
  std::filesystem::create_directory(other.path() / "keyseat_recompute_none.so");
  CHECK_CONTAINS(refusal_text(other.search(), "recompute", "none"), "not a regular file");
  std::filesystem::remove(other.path() / "keyseat_recompute_none.so");
  std::filesystem::create_symlink("nowhere", other.path() / "keyseat_recompute_none.so");
  CHECK_CONTAINS(refusal_text(other.search(), "recompute", "none"), "P5 ");
}

TEST_CASE("P5: pins are the list of what may be loaded") {
  const TemporaryFolder folder;
  const auto file = folder.copy(good_file());
  keyseat::PluginSearch search = folder.search();
  search.pins = {{"recompute/none", std::string(64, 'a')}};
  const std::string text = refusal_text(search, "recompute", "none");
  CHECK_CONTAINS(text, "P5 ");
  CHECK_CONTAINS(text, std::string(64, 'a'));
  CHECK_CONTAINS(text, keyseat::sha256_hex_of_file(file).value());
  search.pins = {{"comm/self", std::string(64, 'a')}};
  CHECK_CONTAINS(refusal_text(search, "recompute", "none"), "and not recompute/none");
}

TEST_CASE("P1: a misspelt name gets the nearest one, with where it was looked for") {
  const TemporaryFolder folder;
  folder.copy(good_file());
  const std::string text = load_text(folder.search(), "recompute", "noen");
  CHECK_CONTAINS(
      text, "P1 no plugin recompute/noen. Did you mean none? Looked in: " + folder.path().string());
  CHECK_CONTAINS(text, "Available: none.");
  CHECK_CONTAINS(load_text(folder.search(), "recomputes", "none"), "Did you mean \"recompute\"?");
  CHECK_CONTAINS(load_text(folder.search(), "comm", "self"), "no plugin of this kind");
  keyseat::PluginSearch search = folder.search();
  search.folders.push_back({"/no/such/folder", "--plugin-dir"});
  CHECK_CONTAINS(load_text(search, "recompute", "none"),
                 "P1 the plugin folder /no/such/folder (--plugin-dir) does not exist");
}

TEST_CASE("P7: the same name in two folders shows both; one folder named twice is one") {
  const TemporaryFolder first, second;
  const auto a = first.copy(good_file());
  const auto b = second.copy(good_file());
  keyseat::PluginSearch search = first.search();
  search.folders.push_back({second.path(), "test"});
  const std::string text = refusal_text(search, "recompute", "none");
  CHECK_CONTAINS(text, "P7 ");
  CHECK_CONTAINS(text, a.string());
  CHECK_CONTAINS(text, b.string());
  search.folders[1].path = first.path();
  search.pins = {{"x/y", ""}};  // keeps it from being loaded
  CHECK_CONTAINS(refusal_text(search, "recompute", "none"), "P5 ");
}

TEST_CASE("the current folder and LD_LIBRARY_PATH are never searched") {
  const TemporaryFolder here, searched;
  here.copy(zoo_file("good"));
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(here.path());
  setenv("LD_LIBRARY_PATH", here.path().c_str(), 1);
  CHECK_CONTAINS(refusal_text(searched.search(), "recompute", "good"), "P1 ");
  unsetenv("LD_LIBRARY_PATH");
  std::filesystem::current_path(before);
}
