// Checks shared by the public wrappers of the interfaces: a broken rule is R4 with the culprit.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "keyseat/status.h"

namespace keyseat {

// Throws R4: "decoder.layers.3 broke a rule of its interface: ...".
[[noreturn]] void contract_broken(const std::string& who, const std::string& what);

// "float32 [3, 4]": dtype and sizes of a tensor, for messages.
std::string tensor_text(const at::Tensor& tensor);

}  // namespace keyseat
