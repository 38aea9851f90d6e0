// The header of a safetensors file: parsed and checked before anything of the data is believed.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <span>
#include <string>
#include <vector>

#include "keyseat/status.h"

namespace keyseat::checkpoint {

struct StoredTensor {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  size_t begin = 0, end = 0;  // bytes, from the start of the file
};

struct SafetensorsHeader {
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> metadata;
};

// `file`: all bytes of the file; `path` is for messages.
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> file,
                                                   const std::string& path);

const char* safetensors_dtype_name(
    at::ScalarType dtype);  // "F32"; throws R6 for a type the format lacks

}  // namespace keyseat::checkpoint
