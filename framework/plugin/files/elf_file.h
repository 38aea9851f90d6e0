// Reading parts of an ELF library as plain bytes, without running any of it.
//
// A small walk of our own: the file may be cut, mutated or not a library at all, and no answer to
// that may be a crash. Every offset is checked against the size of the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "keyseat/status.h"

namespace keyseat {

class ElfFile {
 public:
  // P2 with the reason where the file is no 64-bit shared library of this machine's architecture.
  static Result<ElfFile> open(const std::filesystem::path& file);

  // The bytes of a section; none where there is no such section or it lies outside the file.
  std::optional<std::string_view> section(std::string_view name) const;
  // What the linker is asked to load first (DT_NEEDED), in order.
  std::vector<std::string> needed() const { return dynamic_strings(kNeeded); }
  // Folders given by DT_RUNPATH or DT_RPATH, with $ORIGIN replaced by the file's folder.
  std::vector<std::string> run_path() const;

  // A name that others can link to.
  struct Symbol {
    std::string name;
    bool strong = false;  // neither weak nor unique
  };
  // Those that the library defines itself.
  std::vector<Symbol> exported() const;

 private:
  static constexpr int64_t kNeeded = 1, kRpath = 15, kRunpath = 29;  // DT_* of elf.h
  ElfFile(std::filesystem::path file, std::string bytes)
      : file_(std::move(file)), bytes_(std::move(bytes)) {}
  std::string header_problem() const;
  template <typename T>
  bool read(uint64_t offset, T& value) const;
  std::optional<std::string_view> slice(uint64_t offset, uint64_t size) const;
  std::vector<std::string> dynamic_strings(int64_t tag) const;

  std::filesystem::path file_;
  std::string bytes_;
};

}  // namespace keyseat
