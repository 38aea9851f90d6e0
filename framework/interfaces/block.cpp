// Kind `block`: anchors, and the checks around a unit's forward.
#include "keyseat/interfaces/block.h"

#include <fmt/format.h>

#include "interfaces/contract.h"

namespace keyseat {

Unit::~Unit() = default;
Block::~Block() = default;

namespace {

const at::Tensor* find(const Tensors& tensors, const std::string& name) {
  for (const auto& [candidate, tensor] : tensors) {
    if (candidate == name) return &tensor;
  }
  return nullptr;
}

// Sizes of symbols are the executor's business; constants are known here.
void check_tensor(const std::string& unit, const char* role, const TensorSpec& spec,
                  const at::Tensor& tensor, at::ScalarType compute_dtype) {
  const auto broken = [&](const std::string& what) {
    contract_broken(unit, fmt::format("{} \"{}\" {}", role, spec.name, what));
  };
  if (!tensor.defined()) broken("is undefined");
  const at::ScalarType dtype = spec.dtype.value_or(compute_dtype);
  if (tensor.scalar_type() != dtype) {
    broken(fmt::format("is {}, declared as {}", tensor_text(tensor), c10::toString(dtype)));
  }
  if (tensor.dim() != static_cast<int64_t>(spec.dims.size())) {
    broken(
        fmt::format("is {}, declared with {} dimensions", tensor_text(tensor), spec.dims.size()));
  }
  for (int dim = 0; dim < tensor.dim(); ++dim) {
    const Dim& declared = spec.dims[static_cast<size_t>(dim)];
    if (declared.symbol == DimSymbol::kConstant &&
        tensor.size(dim) != declared.size) {
      broken(fmt::format("is {}, declared with size {} in dimension {}", tensor_text(tensor),
                         declared.size, dim));
    }
  }
}

// Exactly the declared names, each as declared.
void check_all(const std::string& unit, const char* role, const std::vector<TensorSpec>& specs,
               const Tensors& tensors, at::ScalarType compute_dtype) {
  for (const TensorSpec& spec : specs) {
    const at::Tensor* tensor = find(tensors, spec.name);
    if (tensor == nullptr)
      contract_broken(unit, fmt::format("{} \"{}\" is missing", role, spec.name));
    check_tensor(unit, role, spec, *tensor, compute_dtype);
  }
  if (tensors.size() == specs.size()) return;
  for (const auto& [name, tensor] : tensors) {
    bool declared = false;
    for (const TensorSpec& spec : specs) declared = declared || spec.name == name;
    if (!declared) contract_broken(unit, fmt::format("{} \"{}\" is not declared", role, name));
  }
}

}  // namespace

Tensors Unit::forward(const Params& params, const Tensors& inputs, StepContext& context) const {
  const std::string& unit = context.unit();
  check_all(unit, "its input", spec_.reads, inputs, context.compute_dtype());
  // Inference tensors count no versions; a write into one fails by itself.
  const auto version = [](const at::Tensor& tensor) -> int64_t {
    return tensor.is_inference() ? 0 : static_cast<int64_t>(tensor._version());
  };
  std::vector<int64_t> versions;
  for (const auto& [name, tensor] : inputs) versions.push_back(version(tensor));

  Tensors outputs = forward_(params, inputs, context);

  check_all(unit, "its output", spec_.writes, outputs, context.compute_dtype());
  size_t index = 0;
  for (const auto& [name, input] : inputs) {
    if (version(input) != versions[index++]) {
      contract_broken(unit, fmt::format("it wrote into its input \"{}\"", name));
    }
    if (input.numel() == 0) continue;  // all empty tensors may share one storage
    for (const auto& [written, output] : outputs) {
      if (output.is_alias_of(input)) {
        contract_broken(unit, fmt::format("its output \"{}\" is its input \"{}\" or a view of it; "
                                          "return a new tensor",
                                          written, name));
      }
    }
  }
  return outputs;
}

}  // namespace keyseat
