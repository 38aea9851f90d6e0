// Element-wise reductions of a few buffers in a fixed order.
#pragma once

#include <cstddef>
#include <vector>

#include "keyseat/interfaces/comm.h"

namespace keyseat_comm_shm {

// Bytes that one call takes at most: what it adds up in between stays in the first cache.
inline constexpr size_t kReduceBytes = 16384;

// output = first op second op ...; `bytes` of every buffer, whole elements. bf16 is summed in fp32.
// output may be one of the inputs.
using ReduceFunction = void (*)(char* output, const std::vector<const char*>& inputs, size_t bytes);

// Null where the dtype cannot be reduced.
ReduceFunction reduce_function(at::ScalarType type, keyseat::ReduceOp op);

}  // namespace keyseat_comm_shm
