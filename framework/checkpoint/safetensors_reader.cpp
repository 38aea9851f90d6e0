#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/safetensors_header.h"
#include "keyseat/safetensors.h"

namespace keyseat {

using checkpoint::SafetensorsHeader;
using checkpoint::StoredTensor;

namespace {

// A whole file, mapped read-only.
class MappedFile {
 public:
  static Result<std::shared_ptr<const MappedFile>> open(const std::string& path) {
    const auto refuse = [&](const std::string& what) {
      return Problem{Code::kR7File, {path, 0, 0}, what, std::strerror(errno), ""};
    };
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return refuse("cannot open the file");
    struct stat info {};
    if (::fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) {
      ::close(descriptor);
      return refuse("not a regular file");
    }
    auto file = std::make_shared<MappedFile>();
    file->size_ = static_cast<size_t>(info.st_size);
    if (file->size_ > 0) {
      file->data_ = ::mmap(nullptr, file->size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    }
    ::close(descriptor);
    if (file->data_ == MAP_FAILED) {
      file->data_ = nullptr;
      return refuse("cannot map the file");
    }
    return std::shared_ptr<const MappedFile>(std::move(file));
  }
  MappedFile() = default;
  MappedFile(const MappedFile&) = delete;
  ~MappedFile() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace

struct SafetensorsReader::Impl {
  struct Located {
    StoredTensor stored;
    std::shared_ptr<const std::byte> file;  // its first byte; keeps it mapped
  };
  std::map<std::string, Located> tensors;
  std::map<std::string, std::string> metadata;

  const Located& at(const std::string& name) const {
    const auto found = tensors.find(name);
    if (found == tensors.end()) {
      throw Error(
          Problem{Code::kR6Data, {}, "there is no tensor \"" + name + "\" in the file", "", ""});
    }
    return found->second;
  }
  std::optional<Problem> add(const std::string& path) {
    auto file = MappedFile::open(path);
    if (!file) return file.problem();
    auto header = checkpoint::parse_safetensors_header(file.value()->bytes(), path);
    if (!header) return header.problem();
    const std::shared_ptr<const std::byte> begin(file.value(), file.value()->bytes().data());
    for (auto& [name, stored] : header.value().tensors) {
      if (!tensors.emplace(name, Located{std::move(stored), begin}).second) {
        return Problem{Code::kR6Data,
                       {path, 0, 0},
                       "tensor \"" + name + "\" stands in two files of this checkpoint",
                       "",
                       ""};
      }
    }
    metadata.merge(header.value().metadata);
    return std::nullopt;
  }
};

namespace {

// The files of a checkpoint folder, from its index or the one file.
Result<std::vector<std::string>> files_of(const std::string& path) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(path)) return std::vector<std::string>{path};
  const fs::path folder(path), index = folder / "model.safetensors.index.json";
  if (fs::exists(folder / "model.safetensors"))
    return std::vector<std::string>{(folder / "model.safetensors").string()};
  if (!fs::exists(index)) {
    return Problem{Code::kR7File,
                   {path, 0, 0},
                   "the folder has no model.safetensors and no model.safetensors.index.json",
                   "",
                   "Give the folder of a Hugging Face checkpoint, or the file itself."};
  }
  std::ifstream stream(index);
  const auto root = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
  std::set<std::string> files;
  if (root.is_object() && root.contains("weight_map") && root["weight_map"].is_object()) {
    for (const auto& entry : root["weight_map"]) {
      // Names stay inside of the folder.
      if (entry.is_string() &&
          fs::path(entry.get<std::string>()).filename() == entry.get<std::string>()) {
        files.insert((folder / entry.get<std::string>()).string());
      }
    }
  }
  if (files.empty())
    return Problem{Code::kR6Data, {index.string(), 0, 0}, "the index names no files", "", ""};
  return std::vector<std::string>(files.begin(), files.end());
}

}  // namespace

Result<SafetensorsReader> SafetensorsReader::open(const std::string& path) {
  auto files = files_of(path);
  if (!files) return files.problem();
  auto impl = std::make_shared<Impl>();
  for (const std::string& file : files.value()) {
    if (auto problem = impl->add(file)) return *problem;
  }
  SafetensorsReader reader;
  reader.impl_ = std::move(impl);
  return reader;
}

std::vector<std::string> SafetensorsReader::names() const {
  std::vector<std::string> names;
  for (const auto& [name, located] : impl_->tensors) names.push_back(name);
  return names;
}

bool SafetensorsReader::has(const std::string& name) const {
  return impl_->tensors.count(name) > 0;
}
at::ScalarType SafetensorsReader::dtype(const std::string& name) const {
  return impl_->at(name).stored.dtype;
}
std::vector<int64_t> SafetensorsReader::shape(const std::string& name) const {
  return impl_->at(name).stored.shape;
}

at::Tensor SafetensorsReader::tensor(const std::string& name) const {
  const auto& located = impl_->at(name);
  const std::byte* begin = located.file.get() + located.stored.begin;
  auto* data = const_cast<std::byte*>(begin);  // read-only by convention, as the header says
  if (reinterpret_cast<uintptr_t>(data) % c10::elementSize(located.stored.dtype) == 0) {
    return at::from_blob(
        data, located.stored.shape, [keep = located.file](void*) {},
        at::TensorOptions(located.stored.dtype));
  }
  at::Tensor copy = at::empty(located.stored.shape, at::TensorOptions(located.stored.dtype));
  const size_t bytes = located.stored.end - located.stored.begin;
  if (bytes > 0) std::memcpy(copy.data_ptr(), begin, bytes);
  return copy;
}

const std::map<std::string, std::string>& SafetensorsReader::metadata() const {
  return impl_->metadata;
}

}  // namespace keyseat
