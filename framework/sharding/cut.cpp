#include "keyseat/sharding/cut.h"

namespace keyseat::sharding {

namespace {

bool contains(const std::vector<Axis>& axes, Axis axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

Pieces::Cut cut_along(const ParamSpec& param, int64_t degree) {
  const TensorSplit& split = param.split;
  const int64_t size = param.shape[static_cast<size_t>(split.dim)];
  return {split.dim, degree, split.units,
          param.parts.empty() ? std::vector<int64_t>{size} : param.parts};
}

bool is_cut_over_tensor(const UnitSpec& unit, const ParamSpec& param, int64_t tensor) {
  if (tensor == 1 || !has_split(param) || replicating_param(unit, tensor) != nullptr) return false;
  return divides(param.split, tensor) || param.split.otherwise == TensorSplit::Otherwise::kUneven;
}

// The rows of the ranks of an axis are the same, and so are their gradients: of a unit that is not
// split over it, unless every tensor rank works on its own heads or columns of the parameter.
double gradient_share(const UnitSpec& unit, const ParamSpec& param, bool cut, const Mesh& mesh) {
  const std::vector<Axis> split = mesh.split_axes(unit.layout);
  const int64_t tensor = mesh.degree(Axis::kTensor);
  const bool own_part =
      param.tensor_shares || (param.domain == ParamDomain::kDense && has_split(param));
  const bool shares = own_part && replicating_param(unit, tensor) == nullptr;
  double share = 1;
  if (!contains(split, Axis::kContext)) share /= static_cast<double>(mesh.degree(Axis::kContext));
  if (!contains(split, Axis::kTensor) && !cut && !shares) share /= static_cast<double>(tensor);
  return share;
}

}  // namespace

std::vector<Axis> holder_axes(Holders holders, bool replicas) {
  std::vector<Axis> axes;
  switch (holders) {
    case Holders::kStage:
      axes = {Axis::kTensor, Axis::kContext, Axis::kShard};
      break;
    case Holders::kTensorSlice:
      axes = {Axis::kContext, Axis::kShard};
      break;
    case Holders::kExpertSlice:
      return {Axis::kExpertData};
  }
  if (replicas) axes.push_back(Axis::kReplicate);
  return axes;
}

std::vector<Axis> piece_axes(Holders holders) {
  switch (holders) {
    case Holders::kTensorSlice:
      return {Axis::kTensor};
    case Holders::kExpertSlice:
      return {Axis::kExpertTensor, Axis::kExpert};
    case Holders::kStage:
      break;
  }
  return {};
}

double kept_share(const UnitSpec& unit, const Mesh& mesh) {
  double share = 1;
  for (const Axis axis : mesh.split_axes(unit.layout))
    share /= static_cast<double>(mesh.degree(axis));
  return share;
}

double work_share(const UnitSpec& unit, const Mesh& mesh) {
  const double share = kept_share(unit, mesh);
  if (contains(mesh.split_axes(unit.layout), Axis::kTensor)) return share;
  for (int param = 0; param < static_cast<int>(unit.params.size()); ++param) {
    if (cut_of(unit, param, mesh).holders == Holders::kTensorSlice)
      return share / static_cast<double>(mesh.degree(Axis::kTensor));
  }
  return share;
}

bool has_split(const ParamSpec& param) {
  return param.split.dim >= 0 && param.split.dim < static_cast<int>(param.shape.size()) &&
         param.split.units > 0;
}

bool divides(const TensorSplit& split, int64_t degree) { return split.units % degree == 0; }

const ParamSpec* replicating_param(const UnitSpec& unit, int64_t tensor) {
  for (const ParamSpec& param : unit.params) {
    const bool asks = param.split.otherwise == TensorSplit::Otherwise::kReplicateUnit;
    if (asks && param.domain == ParamDomain::kDense && has_split(param) &&
        !divides(param.split, tensor))
      return &param;
  }
  return nullptr;
}

ParamCut cut_of(const UnitSpec& unit, int param, const Mesh& mesh) {
  const ParamSpec& spec = unit.params[static_cast<size_t>(param)];
  const int64_t tensor = mesh.degree(Axis::kTensor);
  ParamCut found;
  found.pieces.shape = spec.shape;
  if (spec.domain == ParamDomain::kExpert) {
    found.holders = Holders::kExpertSlice;
    const int64_t slices = mesh.degree(Axis::kExpertTensor), ranks = mesh.degree(Axis::kExpert);
    if (slices > 1 && has_split(spec)) found.pieces.cuts.push_back(cut_along(spec, slices));
    if (ranks > 1) found.pieces.cuts.push_back({0, ranks, spec.shape[0], {spec.shape[0]}});
    found.place = mesh.coordinate(Axis::kExpert) * slices + mesh.coordinate(Axis::kExpertTensor);
  } else if (is_cut_over_tensor(unit, spec, tensor)) {
    found.holders = Holders::kTensorSlice;
    found.pieces.cuts.push_back(cut_along(spec, tensor));
    found.place = mesh.coordinate(Axis::kTensor);
  }
  const bool cut = found.holders == Holders::kTensorSlice;
  found.gradient_share = gradient_share(unit, spec, cut, mesh);
  return found;
}

}  // namespace keyseat::sharding
