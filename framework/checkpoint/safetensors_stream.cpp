#include "checkpoint/safetensors_stream.h"

#include <xxhash.h>

#include "checkpoint/safetensors_header.h"
#include "keyseat/status.h"

namespace keyseat::checkpoint {

struct FileHash {
  FileHash() : state(XXH3_createState()) { XXH3_128bits_reset(state); }
  ~FileHash() { XXH3_freeState(state); }
  XXH3_state_t* state;
  int64_t bytes = 0;

  void add(const void* data, size_t size) {
    XXH3_128bits_update(state, data, size);
    bytes += static_cast<int64_t>(size);
  }
  FileDigest digest() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state);
    return {bytes, hash.low64, hash.high64};
  }
};

FileDigest digest_of_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  FileHash hash;
  std::vector<char> buffer(size_t{1} << 20);
  while (stream) {
    stream.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    hash.add(buffer.data(), static_cast<size_t>(stream.gcount()));
  }
  if (!stream.eof()) {
    throw Error(
        Problem{Code::kR7File, {path, 0, 0}, "cannot read the file", std::strerror(errno), ""});
  }
  return hash.digest();
}

std::string digest_text(const FileDigest& digest) {
  return fmt::format("{:016x}{:016x}", digest.high, digest.low);
}

SafetensorsStream::SafetensorsStream(const std::string& path, std::vector<PlannedTensor> plan,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path), plan_(std::move(plan)), file_(path), hash_(std::make_unique<FileHash>()) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t offset = 0;
  for (const PlannedTensor& tensor : plan_) {
    if (header.contains(tensor.name)) {
      throw Error(Problem{
          Code::kR6Data, {path, 0, 0}, "two tensors are named \"" + tensor.name + "\"", "", ""});
    }
    const int64_t bytes =
        c10::multiply_integers(tensor.shape) * static_cast<int64_t>(c10::elementSize(tensor.dtype));
    header[tensor.name] = {{"dtype", safetensors_dtype_name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // so that the data is aligned
  const uint64_t length = text.size();
  put(&length, sizeof length);
  put(text.data(), text.size());
}

SafetensorsStream::~SafetensorsStream() = default;

void SafetensorsStream::put(const void* data, size_t size) {
  file_.write(data, size);
  hash_->add(data, size);
}

void SafetensorsStream::write(const at::Tensor& tensor) {
  const bool planned = next_ < plan_.size() && tensor.sizes() == plan_[next_].shape &&
                       tensor.scalar_type() == plan_[next_].dtype;
  if (!planned) {
    throw Error(Problem{Code::kR4Contract,
                        {path_, 0, 0},
                        fmt::format("tensor {} of the file is not the one that was planned", next_),
                        "the header with names, types and shapes is written first",
                        ""});
  }
  ++next_;
  const at::Tensor plain = tensor.detach().to(at::kCPU).contiguous();
  put(plain.data_ptr(), static_cast<size_t>(plain.numel()) * plain.element_size());
}

FileDigest SafetensorsStream::finish() {
  file_.commit();
  return hash_->digest();
}

}  // namespace keyseat::checkpoint
