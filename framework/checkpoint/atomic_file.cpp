#include "checkpoint/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include "keyseat/status.h"

namespace keyseat::checkpoint {

namespace {

[[noreturn]] void fail_at(const std::string& path, const std::string& what) {
  const std::string why = std::strerror(errno);
  throw Error(Problem{
      Code::kR7File, {path, 0, 0}, what, why, "Check the folder, its rights and the free space."});
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), temporary_(path_ + ".partial") {
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) fail("cannot create the file");
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t size) {
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(descriptor_, next, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("cannot write the file");
    next += written;
    size -= static_cast<size_t>(written);
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) fail("cannot flush the file");
  ::close(descriptor_);
  descriptor_ = -1;
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot rename the file");
}

void AtomicFile::fail(const std::string& what) const { fail_at(path_, what); }

void write_text_file(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

void flush_to_disk(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail_at(path, "cannot open it to flush it");
  const int failed = ::fsync(descriptor);
  ::close(descriptor);
  if (failed != 0) fail_at(path, "cannot flush it");
}

}  // namespace keyseat::checkpoint
