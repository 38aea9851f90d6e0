#include "train/tensor_spec.h"

namespace keyseat {
namespace {

const char* symbol_name(DimSymbol symbol) {
  switch (symbol) {
    case DimSymbol::kT:
      return "T";
    case DimSymbol::kP:
      return "P";
    case DimSymbol::kV:
      return "V";
    case DimSymbol::kN:
      return "N";
    case DimSymbol::kS:
      return "S";
    case DimSymbol::kR:
      return "R";
    case DimSymbol::kConstant:
      return "constant";
  }
  return "unknown";
}

}  // namespace

std::string shape_text(const TensorSpec& spec) {
  std::string text = "[";
  for (size_t i = 0; i < spec.dims.size(); ++i) {
    const Dim& dim = spec.dims[i];
    text += i == 0 ? "" : ", ";
    text += dim.symbol == DimSymbol::kConstant ? std::to_string(dim.size) : symbol_name(dim.symbol);
  }
  return text + "] " + (spec.dtype ? c10::toString(*spec.dtype) : "compute dtype");
}

bool same_shape(const TensorSpec& a, const TensorSpec& b) {
  if (a.dtype != b.dtype || a.dims.size() != b.dims.size()) return false;
  for (size_t i = 0; i < a.dims.size(); ++i) {
    if (a.dims[i].symbol != b.dims[i].symbol || a.dims[i].size != b.dims[i].size) return false;
  }
  return true;
}

const BatchTensor* find_batch_tensor(const std::string& name) {
  for (const BatchTensor& tensor : batch_tensors()) {
    if (name == tensor.name) return &tensor;
  }
  return nullptr;
}

bool fits(const TensorSpec& spec, const BatchTensor& tensor) {
  return spec.dtype == tensor.dtype && static_cast<int>(spec.dims.size()) == tensor.dims;
}

}  // namespace keyseat
