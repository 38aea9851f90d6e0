// Writing a safetensors file tensor by tensor, so that only one of them is in memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/atomic_file.h"

namespace keyseat::checkpoint {

struct PlannedTensor {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
};

struct FileDigest {
  int64_t bytes = 0;
  uint64_t low = 0, high = 0;  // XXH3, 128 bits
};
FileDigest digest_of_file(const std::string& path);  // Error R7 where it cannot be read
std::string digest_text(const FileDigest& digest);   // 32 hexadecimal digits

struct FileHash;

class SafetensorsStream {
 public:
  // Writes the header. Error R6: two tensors of one name, or a dtype that the format lacks.
  SafetensorsStream(const std::string& path, std::vector<PlannedTensor> plan,
                    const std::map<std::string, std::string>& metadata);
  ~SafetensorsStream();
  // The next tensor of the plan; Error R4 where it is another one.
  void write(const at::Tensor& tensor);
  FileDigest finish();  // commits the file; all tensors have been written

 private:
  void put(const void* data, size_t size);

  std::string path_;
  std::vector<PlannedTensor> plan_;
  size_t next_ = 0;
  AtomicFile file_;
  std::unique_ptr<FileHash> hash_;
};

}  // namespace keyseat::checkpoint
