// Files that appear under their name only when they are complete and on the disk.
#pragma once

#include <cstddef>
#include <string>

namespace keyseat::checkpoint {

class AtomicFile {
 public:
  // Creates PATH.partial. All functions throw Error R7 with the reason of the system.
  explicit AtomicFile(std::string path);
  ~AtomicFile();  // removes what was not committed
  AtomicFile(const AtomicFile&) = delete;

  void write(const void* data, size_t size);
  void commit();  // flushes to the disk, then renames

 private:
  [[noreturn]] void fail(const std::string& what) const;
  std::string path_, temporary_;
  int descriptor_ = -1;
};

// The whole file at once.
void write_text_file(const std::string& path, const std::string& text);

// Makes what happened to the names inside of a folder, or to the content of a file, last.
void flush_to_disk(const std::string& path);

}  // namespace keyseat::checkpoint
