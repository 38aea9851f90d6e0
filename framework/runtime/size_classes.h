// Size classes of the allocator: multiples of 64 bytes up to 512, then eight per octave, so that at
// most an eighth is lost to rounding.
#pragma once

#include <bit>
#include <cstddef>

namespace keyseat {

inline constexpr size_t kSmallestClass = 64;
inline constexpr size_t kLinearLimit = 512;  // up to here the classes are 64 bytes apart
inline constexpr int kStepsPerOctave = 8;
inline constexpr int kSizeClasses = kStepsPerOctave * (1 + 47 - 9);  // up to 2^47 bytes

// Class of a request of `bytes` > 0, and the bytes of a class.
constexpr int size_class_of(size_t bytes) {
  if (bytes <= kLinearLimit) return static_cast<int>((bytes - 1) / kSmallestClass);
  const int octave = std::bit_width(bytes - 1) - 1;
  const size_t step = size_t{1} << (octave - 3);
  const auto within = static_cast<int>((bytes - 1 - (size_t{1} << octave)) / step);
  return kStepsPerOctave * (octave - 8) + within;
}

constexpr size_t size_class_bytes(int size_class) {
  if (size_class < kStepsPerOctave) return kSmallestClass * static_cast<size_t>(size_class + 1);
  const int octave = size_class / kStepsPerOctave + 8;
  const size_t step = size_t{1} << (octave - 3);
  return (size_t{1} << octave) + step * static_cast<size_t>(size_class % kStepsPerOctave + 1);
}

}  // namespace keyseat
