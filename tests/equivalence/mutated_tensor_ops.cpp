// Ops with mutations (keyseat/mutation.h), which here stand in for those of the library: the same
// code, made wrong on purpose where a test says so.
#define KEYSEAT_MUTATIONS

#include "keyseat/mutation.h"
#include "nn/attention_pieces.cpp"
#include "nn/gathered_attention.cpp"
#include "nn/ring_attention.cpp"
#include "nn/row_attention.cpp"
#include "nn/split_cross_entropy.cpp"
#include "nn/tensor_parallel.cpp"
