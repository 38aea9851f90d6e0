// Tells whether a file is what it was: by what the file system says, and by content where that is
// not enough.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace keyseat::data {

struct FileStamp {
  int64_t size = -1;  // bytes; -1: there is no such file
  int64_t modified_ns = 0, changed_ns = 0, inode = 0;
  int64_t hash = 0;  // XXH3 of the content; a stamp that was just taken has none
};

FileStamp take_stamp(const std::string& path);
int64_t content_hash(std::span<const uint8_t> bytes);
std::optional<int64_t> content_hash_of(const std::string& path);  // nothing where it cannot be read
int64_t now_ns();                                                 // of the clock that files use

enum class FileState {
  kSame,         // size, times and inode are those of the stamp
  kSameContent,  // they are not, or are too fresh to be trusted, but the content is the same
  kChanged,
};
// `trusted_ns`: when the stamp was taken. A file may be written twice within one tick of the file
// system's clock, so times that are younger than a second before it prove nothing.
FileState compare(const std::string& path, const FileStamp& then, int64_t trusted_ns);

}  // namespace keyseat::data
