#include <fcntl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "checkpoint/safetensors_header.h"
#include "keyseat/safetensors.h"

namespace keyseat {

namespace {

// A file that appears under its name only when it is complete.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path) : path_(path), temporary_(path + ".partial") {
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor_ < 0) fail("cannot create");
  }
  AtomicFile(const AtomicFile&) = delete;
  ~AtomicFile() {
    if (descriptor_ >= 0) {  // not committed
      ::close(descriptor_);
      ::unlink(temporary_.c_str());
    }
  }
  void write(const void* data, size_t size) {
    const char* next = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t written = ::write(descriptor_, next, size);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail("cannot write");
      next += written;
      size -= static_cast<size_t>(written);
    }
  }
  void commit() {
    if (::fsync(descriptor_) != 0) fail("cannot flush");
    ::close(descriptor_);
    descriptor_ = -1;
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot rename");
  }

 private:
  [[noreturn]] void fail(const std::string& what) {
    const std::string why = std::strerror(errno);
    throw Error(Problem{Code::kR7File,
                        {path_, 0, 0},
                        what + " the file",
                        why,
                        "Check the folder, its rights and the free space."});
  }
  std::string path_, temporary_;
  int descriptor_ = -1;
};

}  // namespace

void write_safetensors(const std::string& path,
                       const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  size_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    if (header.contains(name)) {
      throw Error(
          Problem{Code::kR6Data, {path, 0, 0}, "two tensors are named \"" + name + "\"", "", ""});
    }
    const size_t bytes = static_cast<size_t>(tensor.numel()) * tensor.element_size();
    header[name] = {{"dtype", checkpoint::safetensors_dtype_name(tensor.scalar_type())},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // so that the data is aligned

  AtomicFile file(path);
  const uint64_t length = text.size();
  file.write(&length, sizeof length);
  file.write(text.data(), text.size());
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor plain = tensor.detach().to(at::kCPU).contiguous();
    file.write(plain.data_ptr(), static_cast<size_t>(plain.numel()) * plain.element_size());
  }
  file.commit();
}

}  // namespace keyseat
