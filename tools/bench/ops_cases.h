// The ops that are measured: a Keyseat op and the LibTorch operations that do the same.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "keyseat/params.h"

namespace keyseat::bench {

struct OpCase {
  std::string name, shape;
  std::vector<at::Tensor> inputs;       // gradients are asked for
  std::vector<ParamHandle> parameters;  // their gradients are added into sinks by either side
  std::function<at::Tensor(const OpCase&)> keyseat, libtorch;
};

// At the sizes of bench-small: 960 useful tokens, 1,024 patches, hidden 512 and 384.
std::vector<OpCase> op_cases();

}  // namespace keyseat::bench
