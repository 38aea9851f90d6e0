#include "reduce.h"

#include <c10/util/BFloat16.h>

#include <algorithm>

namespace keyseat_comm_shm {

using keyseat::ReduceOp;

namespace {

template <typename Element>
struct SumOf {
  using Type = Element;
};
template <>
struct SumOf<c10::BFloat16> {
  using Type = float;
};

template <ReduceOp op, typename Value>
Value combine(Value a, Value b) {
  if constexpr (op == ReduceOp::kSum) return a + b;
  if constexpr (op == ReduceOp::kMax) return b > a ? b : a;
  return b < a ? b : a;
}

template <typename Element, ReduceOp op>
void reduce(char* output, const std::vector<const char*>& inputs, size_t bytes) {
  using Value = typename SumOf<Element>::Type;
  constexpr size_t kMost = kReduceBytes / sizeof(Element);
  alignas(64) Value sums[kMost];
  const size_t count = bytes / sizeof(Element);
  const auto* const first = reinterpret_cast<const Element*>(inputs[0]);
  for (size_t i = 0; i < count; ++i) sums[i] = static_cast<Value>(first[i]);
  for (size_t input = 1; input < inputs.size(); ++input) {
    const auto* const values = reinterpret_cast<const Element*>(inputs[input]);
    for (size_t i = 0; i < count; ++i) {
      sums[i] = combine<op>(sums[i], static_cast<Value>(values[i]));
    }
  }
  auto* const results = reinterpret_cast<Element*>(output);
  for (size_t i = 0; i < count; ++i) results[i] = static_cast<Element>(sums[i]);
}

template <typename Element>
ReduceFunction function_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return reduce<Element, ReduceOp::kSum>;
    case ReduceOp::kMax:
      return reduce<Element, ReduceOp::kMax>;
    case ReduceOp::kMin:
      return reduce<Element, ReduceOp::kMin>;
  }
  return nullptr;
}

}  // namespace

ReduceFunction reduce_function(at::ScalarType type, ReduceOp op) {
  switch (type) {
    case at::kFloat:
      return function_of<float>(op);
    case at::kDouble:
      return function_of<double>(op);
    case at::kBFloat16:
      return function_of<c10::BFloat16>(op);
    case at::kLong:
      return function_of<int64_t>(op);
    default:
      return nullptr;
  }
}

}  // namespace keyseat_comm_shm
