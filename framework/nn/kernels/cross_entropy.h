// SIMD kernel of the cross-entropy of rows of logits, with its gradient in place.
#pragma once

#include <cstdint>

namespace keyseat::nn::kernels {

// loss[row] = logsumexp(logits[row]) - logits[row, label]. With `gradient` the logits become
// softmax(logits) - onehot(label); without, they keep their values.
struct CrossEntropyRows {
  float* logits;          // [rows, vocabulary]
  const int64_t* labels;  // [rows], each a column
  float* loss;            // [rows], written
  int64_t rows, vocabulary;
  bool gradient;
};

void run(const CrossEntropyRows& job);

}  // namespace keyseat::nn::kernels
