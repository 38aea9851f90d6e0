// The recorded batch, padded [B, S] with all images and videos in two tensors, as samples of our
// own. Legend: B rows, S padded length, T real tokens of all rows.
#pragma once

#include "keyseat/interfaces/data.h"
#include "keyseat/safetensors.h"

namespace keyseat::tool::parity {

// Where the recorded vision rows of one kind lie among the packed ones.
struct VisualOrder {
  std::vector<int64_t> patches;  // packed patch of each recorded patch
  std::vector<int64_t> tokens;   // packed visual token of each recorded merged token
};

struct Batch {
  int64_t rows = 0, length = 0;    // B, S
  std::vector<Sample> samples;     // one per row: its real tokens
  std::vector<int64_t> real;       // [T] b * S + s of each packed token
  std::vector<int64_t> sample_of;  // [T] its row b
  VisualOrder images, videos;

  bool visual() const { return !images.patches.empty() || !videos.patches.empty(); }
};

// Every visual run takes the next recorded image, or the next frame group of the next video.
// Throws Error R6 where tensors are missing, unknown or contradict each other.
Batch read_batch(const SafetensorsReader& inputs, const std::string& file, const InputSpec& input);

}  // namespace keyseat::tool::parity
