#include "train/conversion_unit.h"

#include <torch/csrc/autograd/custom_function.h>

#include "keyseat/interfaces/comm.h"
#include "keyseat/row_share.h"

namespace keyseat {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What a conversion is, kept for its backward; row, mesh and communicator outlive it.
struct Conversion final : torch::CustomClassHolder {
  Layout from, to;
  DimSymbol rows;
  int dim;
  const RowFacts& row;
  const Mesh& mesh;
  Comm& comm;

  Conversion(const UnitSpec& spec, const StepContext& context)
      : from(spec.reads[0].layout),
        to(spec.writes[0].layout),
        rows(spec.reads[0].dims[static_cast<size_t>(*row_dimension(spec.reads[0]))].symbol),
        dim(*row_dimension(spec.reads[0])),
        row(context.row()),
        mesh(context.mesh()),
        comm(*context.state().comm) {}

  at::Tensor forward(const at::Tensor& share) const {
    return own_share(whole_of(share, from, rows, dim, row, mesh, comm), to, rows, dim, row, mesh);
  }

  // Ranks with equal rows have equal gradients of them, so only those that differ are added.
  at::Tensor backward(const at::Tensor& gradient) const {
    const at::Tensor whole = spread_share(gradient, to, rows, dim, row, mesh);
    const std::vector<Axis> axes = mesh.split_axes(to);
    if (!axes.empty() && !whole.is_meta())
      comm.group(mesh.group(axes)).all_reduce(whole, ReduceOp::kSum)->wait();
    return own_share(whole, from, rows, dim, row, mesh);
  }
};

struct ConversionFunction : torch::autograd::Function<ConversionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& share,
                            const c10::intrusive_ptr<Conversion>& conversion) {
    context->saved_data["conversion"] = c10::IValue::make_capsule(conversion);
    return conversion->forward(share);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto conversion = c10::static_intrusive_pointer_cast<Conversion>(
        context->saved_data["conversion"].toCapsule());
    return {conversion->backward(gradients[0]), {}};
  }
};

class ConversionUnit final : public Unit {
 public:
  explicit ConversionUnit(UnitSpec spec) : Unit(std::move(spec)) {}

 protected:
  Tensors forward_(const Params&, const Tensors& inputs, StepContext& context) const override {
    const std::string& name = spec().reads[0].name;
    const auto conversion = c10::make_intrusive<Conversion>(spec(), context);
    return {{name, ConversionFunction::apply(inputs.at(name), conversion)}};
  }

  // It computes nothing, and keeps its input.
  Cost cost_(const WorkloadShape& shape) const override {
    double elements = 1;
    for (const Dim& dim : spec().reads[0].dims) {
      elements *= dim.symbol == DimSymbol::kT   ? shape.tokens
                  : dim.symbol == DimSymbol::kP ? shape.patches
                  : dim.symbol == DimSymbol::kV
                      ? shape.visual_tokens
                      : static_cast<double>(std::max<int64_t>(dim.size, 1));
    }
    return {0, elements * shape.element_bytes};
  }
};

}  // namespace

std::optional<int> row_dimension(const TensorSpec& spec) {
  for (size_t i = 0; i < spec.dims.size(); ++i) {
    switch (spec.dims[i].symbol) {
      case DimSymbol::kT:
      case DimSymbol::kP:
      case DimSymbol::kV:
      case DimSymbol::kN:
        return static_cast<int>(i);
      default:
        break;
    }
  }
  return std::nullopt;
}

bool has_layout(DimSymbol rows, Layout layout) {
  switch (layout) {
    case Layout::kWhole:
      return true;
    case Layout::kRows:
      return rows == DimSymbol::kT || rows == DimSymbol::kV;
    case Layout::kContextRows:
      return rows == DimSymbol::kT;
    case Layout::kImages:
      return rows == DimSymbol::kP || rows == DimSymbol::kV || rows == DimSymbol::kN;
  }
  return false;
}

bool same_layout(const TensorSpec& a, const TensorSpec& b, const Mesh& mesh) {
  const int64_t context = mesh.degree(Axis::kContext);
  if (a.layout == b.layout || context * mesh.degree(Axis::kTensor) == 1) return true;
  if (!row_dimension(a)) return false;
  const bool same_images = (a.layout == Layout::kImages) == (b.layout == Layout::kImages);
  return mesh.split_axes(a.layout) == mesh.split_axes(b.layout) && (context == 1 || same_images);
}

const char* layout_text(Layout layout) {
  switch (layout) {
    case Layout::kWhole:
      return "the whole";
    case Layout::kRows:
      return "own rows";
    case Layout::kContextRows:
      return "the rows of the context rank";
    case Layout::kImages:
      return "own images";
  }
  return "unknown";
}

std::unique_ptr<Unit> make_conversion(std::string name, const UnitSpec& writer, TensorSpec from,
                                      Layout to) {
  UnitSpec spec;
  spec.name = std::move(name);
  spec.layout = writer.layout;
  spec.rows = writer.rows;
  spec.writes = {from};
  spec.writes[0].layout = to;
  spec.reads = {std::move(from)};
  return std::make_unique<ConversionUnit>(std::move(spec));
}

}  // namespace keyseat
