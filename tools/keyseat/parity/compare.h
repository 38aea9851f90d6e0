// Comparing what was computed with what is recorded. A NaN on either side fails.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "tools/keyseat/parity/report.h"

namespace keyseat::tool::parity {

struct Tolerance {
  double limit = 0;  // 0: exact
  Measure measure = Measure::kMaxAbs;
  // With kRelL2 also no element may be off by more than this share of the largest recorded one: one
  // wrong value among thousands hardly shows in a norm.
  double element_share = 0;
};

// Tensors of one shape, any numeric types; compared in fp64. Different shapes fail.
Check compare_tensors(const std::string& name, const at::Tensor& computed,
                      const at::Tensor& recorded, const Tolerance& tolerance);

// kRelL2 divides by the recorded value.
Check compare_numbers(const std::string& name, double computed, double recorded,
                      const Tolerance& tolerance);

// A check that passes where `detail` is empty.
Check exact_check(const std::string& name, std::string detail);

}  // namespace keyseat::tool::parity
