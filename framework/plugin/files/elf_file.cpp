#include "plugin/files/elf_file.h"

#include <elf.h>

#include <cstring>
#include <fstream>
#include <iterator>

namespace keyseat {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
#error "Add the ELF machine number of this architecture."
#endif

// The text up to the first zero byte at or after `offset`.
std::string string_at(std::string_view table, uint64_t offset) {
  if (offset >= table.size()) return {};
  const std::string_view rest = table.substr(offset);
  return std::string(rest.substr(0, rest.find('\0')));
}

}  // namespace

template <typename T>
bool ElfFile::read(uint64_t offset, T& value) const {
  const auto bytes = slice(offset, sizeof(T));
  if (!bytes) return false;
  std::memcpy(&value, bytes->data(), sizeof(T));
  return true;
}

std::optional<std::string_view> ElfFile::slice(uint64_t offset, uint64_t size) const {
  if (offset > bytes_.size() || size > bytes_.size() - offset) return std::nullopt;
  return std::string_view(bytes_).substr(offset, size);
}

Result<ElfFile> ElfFile::open(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  const auto refuse = [&](const std::string& what) {
    return Problem{Code::kP2NotAPlugin,
                   {},
                   file.string() + " is not a plugin: " + what,
                   "",
                   "Build it again, with keyseat_add_plugin()."};
  };
  if (!stream.is_open() || stream.bad()) return refuse("it cannot be read");
  ElfFile elf(file, std::move(bytes));
  const std::string problem = elf.header_problem();
  if (!problem.empty()) return refuse(problem);
  return elf;
}

std::string ElfFile::header_problem() const {
  if (bytes_.empty()) return "it is empty";
  if (std::string_view(bytes_).substr(0, SELFMAG) != ELFMAG) {
    return "it is no shared library (it does not start with the ELF magic)";
  }
  Elf64_Ehdr header;
  if (!read(0, header)) return "it is cut short inside the ELF header";
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_machine != kMachine) {
    return "it is a library for another machine (ELF machine " + std::to_string(header.e_machine) +
           ", this is " + std::to_string(kMachine) + ")";
  }
  if (header.e_type != ET_DYN) return "it is an ELF file, but no shared library";
  if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shnum == 0) {
    return "it has no table of sections (stripped with a tool that removes it?)";
  }
  // The table of sections stands at the end of a file, so this finds files that were cut.
  if (!slice(header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr))) {
    return "it is cut short: its table of sections lies behind the end of the file";
  }
  return {};
}

std::optional<std::string_view> ElfFile::section(std::string_view name) const {
  Elf64_Ehdr header;
  Elf64_Shdr names;
  if (!read(0, header)) return std::nullopt;
  const auto section_header = [&](uint64_t index, Elf64_Shdr& section) {
    return index < header.e_shnum && read(header.e_shoff + index * sizeof(Elf64_Shdr), section);
  };
  if (!section_header(header.e_shstrndx, names)) return std::nullopt;
  const auto name_table = slice(names.sh_offset, names.sh_size);
  if (!name_table) return std::nullopt;
  for (uint64_t index = 0; index < header.e_shnum; ++index) {
    Elf64_Shdr section;
    if (!section_header(index, section)) return std::nullopt;
    if (section.sh_type == SHT_NOBITS || string_at(*name_table, section.sh_name) != name) continue;
    return slice(section.sh_offset, section.sh_size);
  }
  return std::nullopt;
}

std::vector<std::string> ElfFile::dynamic_strings(int64_t tag) const {
  std::vector<std::string> found;
  const auto entries = section(".dynamic");
  const auto strings = section(".dynstr");
  if (!entries || !strings) return found;
  for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= entries->size(); at += sizeof(Elf64_Dyn)) {
    Elf64_Dyn entry;
    std::memcpy(&entry, entries->data() + at, sizeof(entry));
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == tag) found.push_back(string_at(*strings, entry.d_un.d_val));
  }
  return found;
}

std::vector<std::string> ElfFile::run_path() const {
  std::vector<std::string> lists = dynamic_strings(kRunpath);
  // The linker ignores DT_RPATH where there is a DT_RUNPATH.
  if (lists.empty()) lists = dynamic_strings(kRpath);
  std::vector<std::string> folders;
  for (const std::string& list : lists) {
    for (size_t begin = 0; begin <= list.size();) {
      const size_t end = std::min(list.find(':', begin), list.size());
      std::string folder = list.substr(begin, end - begin);
      for (const char* origin : {"$ORIGIN", "${ORIGIN}"}) {
        const size_t at = folder.find(origin);
        if (at != std::string::npos) {
          folder.replace(at, std::strlen(origin), file_.parent_path().string());
        }
      }
      if (!folder.empty()) folders.push_back(folder);
      begin = end + 1;
    }
  }
  return folders;
}

std::vector<ElfFile::Symbol> ElfFile::exported() const {
  std::vector<Symbol> found;
  const auto entries = section(".dynsym");
  const auto strings = section(".dynstr");
  if (!entries || !strings) return found;
  for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= entries->size(); at += sizeof(Elf64_Sym)) {
    Elf64_Sym entry;
    std::memcpy(&entry, entries->data() + at, sizeof(entry));
    const unsigned binding = ELF64_ST_BIND(entry.st_info);
    if (entry.st_shndx == SHN_UNDEF || binding == STB_LOCAL) continue;
    std::string name = string_at(*strings, entry.st_name);
    if (!name.empty()) found.push_back({std::move(name), binding == STB_GLOBAL});
  }
  return found;
}

}  // namespace keyseat
