// Access to tests/fixtures for the tests of the image path. Tests run in the top folder of the
// checkout.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "keyseat/data/image.h"
#include "keyseat/safetensors.h"

namespace keyseat::data {

inline std::vector<uint8_t> read_bytes(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  REQUIRE_MESSAGE(stream.good(), path);
  return {std::istreambuf_iterator<char>(stream), {}};
}

inline SafetensorsReader open_tensors(const std::string& path) {
  return SafetensorsReader::open(path).value_or_throw();
}

inline std::span<const uint8_t> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const uint8_t*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// A recorded [H, W, 3] uint8 tensor as an image.
inline Image recorded_image(const SafetensorsReader& tensors, const std::string& name) {
  const at::Tensor rgb_HWC = tensors.tensor(name);
  REQUIRE(rgb_HWC.dim() == 3);
  const std::span<const uint8_t> bytes = bytes_of(rgb_HWC);
  return {rgb_HWC.size(0), rgb_HWC.size(1), {bytes.begin(), bytes.end()}};
}

}  // namespace keyseat::data
