// Comparing and printing the specs of named tensors.
#pragma once

#include <string>

#include "keyseat/batch.h"
#include "keyseat/tensors.h"

namespace keyseat {

std::string shape_text(const TensorSpec& spec);             // "[T, 64] compute dtype"
bool same_shape(const TensorSpec& a, const TensorSpec& b);  // dims by symbol, and dtype

const BatchTensor* find_batch_tensor(const std::string& name);  // nullptr where it is none
bool fits(const TensorSpec& spec, const BatchTensor& tensor);

}  // namespace keyseat
