#include "plugin/linker_error.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "plugin/files/elf_file.h"

namespace keyseat {
namespace {

std::string demangled(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 && text != nullptr ? std::string(text.get()) : symbol;
}

// "LIBRARY: cannot open shared object file: No such file or directory"
Problem missing_library(const std::string& id, const std::filesystem::path& file,
                        const std::string& library) {
  std::vector<std::string> folders;
  std::string needed_by = "a library that " + file.filename().string() + " needs";
  if (const Result<ElfFile> elf = ElfFile::open(file)) {
    folders = elf.value().run_path();
    const auto needed = elf.value().needed();
    if (std::find(needed.begin(), needed.end(), library) != needed.end()) {
      needed_by = file.filename().string();
    }
  }
  if (const char* path = std::getenv("LD_LIBRARY_PATH"); path != nullptr && *path != '\0') {
    folders.push_back(std::string("LD_LIBRARY_PATH=") + path);
  }
  folders.emplace_back("the system's folders");
  return Problem{
      Code::kP4Unloadable,
      {},
      fmt::format("{} could not be loaded: it needs {}, which was not found in: {} "
                  "(needed by {})",
                  id, library, fmt::join(folders, ", "), needed_by),
      "",
      fmt::format("Install the package that has {}, or choose another plugin.", library)};
}

// "FILE: undefined symbol: NAME" or "..., version VERSION"
Problem undefined_symbol(const std::string& id, const std::filesystem::path& file,
                         std::string symbol) {
  symbol = symbol.substr(0, symbol.find_first_of(", \t("));
  return Problem{
      Code::kP4Unloadable,
      {},
      fmt::format("{} could not be loaded: it uses \"{}\", which no library that it names "
                  "defines",
                  id, demangled(symbol)),
      fmt::format("File: {}.", file.string()),
      "Define it, or link the plugin to the library that does (keyseat_add_plugin() links "
      "with -z defs and finds this when it is built)."};
}

}  // namespace

Problem linker_problem(const std::string& id, const std::filesystem::path& file,
                       const std::string& text) {
  constexpr std::string_view kMissing = ": cannot open shared object file";
  constexpr std::string_view kUndefined = "undefined symbol: ";
  if (const size_t at = text.find(kMissing); at != std::string::npos) {
    const std::string library = text.substr(0, at);
    if (library != file.string()) return missing_library(id, file, library);
  }
  if (const size_t at = text.find(kUndefined); at != std::string::npos) {
    return undefined_symbol(id, file, text.substr(at + kUndefined.size()));
  }
  return Problem{Code::kP4Unloadable,
                 {},
                 fmt::format("{} could not be loaded: the linker says \"{}\"", id, text),
                 "",
                 "File: " + file.string()};
}

}  // namespace keyseat
