// Safetensors files: memory-mapped, bounds-checked reading; atomic writing.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "keyseat/export.h"
#include "keyseat/status.h"

namespace keyseat {

// One file, or the files of a folder's model.safetensors.index.json, as one set of named tensors.
class KEYSEAT_API SafetensorsReader {
 public:
  // A .safetensors file, or a folder holding model.safetensors or an index. Problems R6/R7: bad
  // header, offsets outside of the file, overlapping, unknown dtype, shape and size that disagree,
  // duplicate names.
  static Result<SafetensorsReader> open(const std::string& path);
  std::vector<std::string> names() const;  // sorted
  bool has(const std::string& name) const;
  at::ScalarType dtype(const std::string& name) const;
  std::vector<int64_t> shape(const std::string& name) const;
  // A tensor over the mapped bytes where they are aligned (read-only by convention; it holds the
  // mapping), else a copy.
  at::Tensor tensor(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

// Writes to a temporary file beside `path`, syncs and renames. Tensors may be non-contiguous;
// written in the given order.
KEYSEAT_API void write_safetensors(const std::string& path,
                                   const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                                   const std::map<std::string, std::string>& metadata = {});

}  // namespace keyseat
