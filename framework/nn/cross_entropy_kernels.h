// Loss and gradient of rows of logits in place, free of LibTorch.
#pragma once

#include <cstdint>

namespace keyseat::nn {

template <typename T>
struct LogitRows {
  T* logits = nullptr;              // [rows, vocabulary]
  const int64_t* labels = nullptr;  // [rows], each a column
  T* losses = nullptr;              // [rows]
  int64_t vocabulary = 0;
  bool gradient = false;
};

// losses[row] = logsumexp(logits[row]) - logits[row][label]. With `gradient` the logits become
// softmax(logits) - onehot(label); without, they keep their values. A row is read three times, but
// from the second level cache: 128 KiB at a vocabulary of 32,768. [begin, end): rows of one thread.
void cross_entropy_rows(const LogitRows<float>& problem, int64_t begin, int64_t end);
void cross_entropy_rows(const LogitRows<double>& problem, int64_t begin, int64_t end);

}  // namespace keyseat::nn
