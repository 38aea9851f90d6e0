#include "data/file_stamp.h"

#include <sys/stat.h>
#include <xxhash.h>

namespace keyseat::data {

namespace {

constexpr int64_t kSecond = 1'000'000'000;

int64_t nanoseconds(const timespec& time) {
  return static_cast<int64_t>(time.tv_sec) * kSecond + time.tv_nsec;
}

}  // namespace

FileStamp take_stamp(const std::string& path) {
  FileStamp stamp;
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return stamp;
  stamp.size = info.st_size;
  stamp.modified_ns = nanoseconds(info.st_mtim);
  stamp.changed_ns = nanoseconds(info.st_ctim);
  stamp.inode = static_cast<int64_t>(info.st_ino);
  return stamp;
}

int64_t content_hash(std::span<const uint8_t> bytes) {
  return static_cast<int64_t>(XXH3_64bits(bytes.data(), bytes.size()));
}

std::optional<int64_t> content_hash_of(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return std::nullopt;
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       XXH3_freeState);
  XXH3_64bits_reset(state.get());
  std::vector<char> block(1 << 20);
  while (stream) {
    stream.read(block.data(), static_cast<std::streamsize>(block.size()));
    XXH3_64bits_update(state.get(), block.data(), static_cast<size_t>(stream.gcount()));
  }
  if (!stream.eof()) return std::nullopt;
  return static_cast<int64_t>(XXH3_64bits_digest(state.get()));
}

int64_t now_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_REALTIME, &time);
  return nanoseconds(time);
}

FileState compare(const std::string& path, const FileStamp& then, int64_t trusted_ns) {
  const FileStamp now = take_stamp(path);
  if (now.size != then.size) return FileState::kChanged;
  if (now.size < 0) return FileState::kSame;  // still not there
  const bool same_times = now.modified_ns == then.modified_ns &&
                          now.changed_ns == then.changed_ns && now.inode == then.inode;
  if (same_times && std::max(now.changed_ns, now.modified_ns) + kSecond < trusted_ns)
    return FileState::kSame;
  return content_hash_of(path) == then.hash ? FileState::kSameContent : FileState::kChanged;
}

}  // namespace keyseat::data
