#include "data/shard_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/utf8.h"

namespace keyseat::data {

namespace {

namespace fs = std::filesystem;

class OpenFile {
 public:
  explicit OpenFile(const std::string& path)
      : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  OpenFile(const OpenFile&) = delete;
  ~OpenFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace

Outcome<FileBytes> read_file(const std::string& path, int64_t offset, int64_t size, int64_t most) {
  const auto unreadable = [&](const std::string& why) {
    return Fault{FaultKind::kUnreadableFile, path + ": " + why};
  };
  const OpenFile file(path);  // not blocking, so that a named pipe is refused instead of waited for
  if (file.get() < 0) {
    if (errno == ENOENT) return Fault{FaultKind::kMissingFile, path + " does not exist"};
    return unreadable(std::strerror(errno));
  }
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return unreadable(std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return unreadable("not a regular file");
  if (size < 0) size = info.st_size - offset;
  if (size > most) {
    return Fault{FaultKind::kFileTooLarge,
                 fmt::format("{} has {} bytes, the limit is {}", path, size, most)};
  }
  if (offset + size > info.st_size) return unreadable("it is shorter than before");
  FileBytes bytes(static_cast<size_t>(size));
  for (int64_t done = 0; done < size;) {
    const ssize_t got = ::pread(file.get(), bytes.data() + done, static_cast<size_t>(size - done),
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return unreadable(got < 0 ? std::strerror(errno) : "it became shorter");
    done += got;
  }
  return bytes;
}

ShardReader::ShardReader(std::string path, ShardListing listing, std::optional<std::string> folder,
                         int64_t max_file_bytes)
    : path_(std::move(path)),
      listing_(std::move(listing)),
      folder_(std::move(folder)),
      max_file_bytes_(max_file_bytes) {}

std::string ShardReader::key(const Extent& record) const {
  return utf8_lossy((folder_ ? path_ : fs::path(path_).filename().string()) + ":" + record.name);
}

Outcome<std::string> ShardReader::json(const Extent& record) const {
  if (record.name == kCutRecord && !listing_.cut.empty())
    return Fault{FaultKind::kCutShard, listing_.cut};
  auto bytes = read_file(path_, record.offset, record.size, max_file_bytes_);
  if (!bytes) return bytes.fault();
  return std::string(bytes.value().begin(), bytes.value().end());
}

const Extent* ShardReader::find(const std::string& name) const {
  const auto found =
      std::lower_bound(listing_.files.begin(), listing_.files.end(), name,
                       [](const Extent& file, const std::string& key) { return file.name < key; });
  return found != listing_.files.end() && found->name == name ? &*found : nullptr;
}

Outcome<FileBytes> ShardReader::file(const Extent& record, const std::string& name) const {
  if (name.empty() || name.find('\0') != std::string::npos)
    return Fault{FaultKind::kBadRecord, "an image or frame without a usable file name"};
  if (folder_) return read_file(*outside_path(name), 0, -1, max_file_bytes_);
  const Extent* member = find(name);
  if (member == nullptr) member = find((fs::path(record.name).parent_path() / name).string());
  if (member == nullptr) return Fault{FaultKind::kMissingFile, "there is no member " + name};
  auto bytes = read_file(path_, member->offset, member->size, max_file_bytes_);
  if (bytes) return bytes;
  return Fault{bytes.fault().kind, "member " + name + ": " + bytes.fault().detail};
}

std::optional<std::string> ShardReader::outside_path(const std::string& name) const {
  if (!folder_) return std::nullopt;
  return (fs::path(*folder_) / name).string();
}

}  // namespace keyseat::data
