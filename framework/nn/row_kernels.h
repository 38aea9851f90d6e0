// Kernels of the row moves, free of LibTorch. [begin, end) is the range of output rows of one
// thread; index -1 stands for "nowhere".
#pragma once

#include <cstddef>
#include <cstdint>

namespace keyseat::nn {

// output[m] = input[index[m]] for rows of `bytes` bytes; zero for -1.
void copy_rows(const std::byte* input, const int64_t* index, int64_t begin, int64_t end,
               size_t bytes, std::byte* output);

struct RowSum {
  const int64_t* index = nullptr;  // [rows, choices]
  int64_t choices = 0;
  int64_t width = 0;
};

// output[t] = sum over k of input[index[t, k]], in order of k; bf16 is summed in fp32.
void add_rows_f32(const RowSum& problem, const float* input, int64_t begin, int64_t end,
                  float* output);
void add_rows_f64(const RowSum& problem, const double* input, int64_t begin, int64_t end,
                  double* output);
void add_rows_bf16(const RowSum& problem, const uint16_t* input, int64_t begin, int64_t end,
                   uint16_t* output);

}  // namespace keyseat::nn
