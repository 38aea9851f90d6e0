#include "keyseat/mesh.h"

namespace keyseat {
namespace {

constexpr std::array<Axis, 5> kDenseOrder{Axis::kTensor, Axis::kContext, Axis::kShard,
                                          Axis::kReplicate, Axis::kPipeline};
constexpr std::array<Axis, 4> kExpertOrder{Axis::kExpertTensor, Axis::kExpert, Axis::kExpertData,
                                           Axis::kPipeline};

bool is_expert_axis(Axis axis) {
  return axis == Axis::kExpertTensor || axis == Axis::kExpert || axis == Axis::kExpertData;
}

size_t index_of(Axis axis) { return static_cast<size_t>(axis); }

// Distance in ranks between neighbours along `axis`: the product of the degrees of all faster axes.
template <size_t N>
int64_t stride_in(const std::array<Axis, N>& order, const std::array<int64_t, 8>& degrees,
                  Axis axis) {
  int64_t stride = 1;
  for (Axis faster : order) {
    if (faster == axis) break;
    stride *= degrees[index_of(faster)];
  }
  return stride;
}

int64_t stride_of(const std::array<int64_t, 8>& degrees, Axis axis) {
  return is_expert_axis(axis) ? stride_in(kExpertOrder, degrees, axis)
                              : stride_in(kDenseOrder, degrees, axis);
}

void check_axes(const std::vector<Axis>& axes) {
  bool dense = false, expert = false;
  for (size_t i = 0; i < axes.size(); ++i) {
    expert |= is_expert_axis(axes[i]);
    dense |= !is_expert_axis(axes[i]) && axes[i] != Axis::kPipeline;
    if (std::find(axes.begin(), axes.begin() + i, axes[i]) != axes.begin() + i) {
      throw Error({Code::kR4Contract,
                   {},
                   fmt::format("a group names the axis \"{}\" twice", axis_name(axes[i])),
                   "",
                   "give every axis once"});
    }
  }
  if (dense && expert) {
    throw Error({Code::kR4Contract,
                 {},
                 "a group mixes axes of the dense and of the expert view",
                 "both views fold the same ranks, so their axes are not independent",
                 "make one group per view"});
  }
}

}  // namespace

const char* axis_name(Axis axis) {
  switch (axis) {
    case Axis::kPipeline:
      return "pipeline";
    case Axis::kReplicate:
      return "replicate";
    case Axis::kShard:
      return "shard";
    case Axis::kContext:
      return "context";
    case Axis::kTensor:
      return "tensor";
    case Axis::kExpertData:
      return "expert_data";
    case Axis::kExpert:
      return "expert";
    case Axis::kExpertTensor:
      return "expert_tensor";
  }
  return "unknown";
}

Mesh Mesh::build(const MeshDegrees& degrees, int64_t world, int64_t rank, int64_t ranks_per_node,
                 Problems& problems) {
  const size_t before = problems.size();
  const auto refuse = [&](std::string what, std::string why, std::string remedy) {
    problems.push_back(
        {Code::kC4Combination, {}, std::move(what), std::move(why), std::move(remedy)});
  };
  const std::pair<Axis, int64_t> given[] = {{Axis::kTensor, degrees.tensor},
                                            {Axis::kContext, degrees.context},
                                            {Axis::kShard, degrees.shard},
                                            {Axis::kReplicate, degrees.replicate},
                                            {Axis::kPipeline, degrees.pipeline},
                                            {Axis::kExpert, degrees.expert},
                                            {Axis::kExpertTensor, degrees.expert_tensor}};
  for (const auto& [axis, degree] : given) {
    if (degree < 1) {
      refuse(fmt::format("the degree \"{}\" is {}", axis_name(axis), degree),
             "a degree counts ranks and is at least 1", "");
    }
  }
  if (world < 1 || rank < 0 || rank >= world) {
    refuse(fmt::format("rank {} of {} ranks", rank, world), "ranks run from 0 to world - 1", "");
  }
  if (ranks_per_node < 1 || (world > ranks_per_node && world % ranks_per_node != 0)) {
    refuse(fmt::format("{} ranks do not fill nodes of {} ranks", world, ranks_per_node),
           "every node has to hold the same number of ranks", "change run.ranks_per_node");
  }
  if (problems.size() > before) return {};

  const int64_t dense =
      degrees.tensor * degrees.context * degrees.shard * degrees.replicate * degrees.pipeline;
  if (dense != world) {
    refuse(fmt::format("the degrees tensor {} x context {} x shard {} x replicate {} x pipeline {} "
                       "make {} ranks, but the run has {}",
                       degrees.tensor, degrees.context, degrees.shard, degrees.replicate,
                       degrees.pipeline, dense, world),
           "every rank has exactly one place in the mesh",
           "change a degree or the number of launched ranks");
    return {};
  }
  const int64_t per_stage = world / degrees.pipeline;
  if (per_stage % (degrees.expert * degrees.expert_tensor) != 0) {
    refuse(fmt::format("expert {} x expert_tensor {} = {} does not divide the {} ranks of a "
                       "pipeline stage",
                       degrees.expert, degrees.expert_tensor,
                       degrees.expert * degrees.expert_tensor, per_stage),
           "the expert view folds over the same ranks as the dense view",
           "choose degrees whose product divides the ranks of a stage");
    return {};
  }

  Mesh mesh;
  mesh.world_ = world;
  mesh.rank_ = rank;
  mesh.ranks_per_node_ = ranks_per_node;
  for (const auto& [axis, degree] : given) mesh.degrees_[index_of(axis)] = degree;
  mesh.degrees_[index_of(Axis::kExpertData)] = per_stage / (degrees.expert * degrees.expert_tensor);
  mesh.sequence_parallel_ = degrees.sequence_parallel && degrees.tensor > 1;
  mesh.context_ring_ = degrees.context_ring;
  return mesh;
}

std::vector<Axis> Mesh::split_axes(Layout layout) const {
  std::vector<Axis> axes;
  if (layout == Layout::kRows && sequence_parallel_) axes.push_back(Axis::kTensor);
  if (layout != Layout::kWhole && degree(Axis::kContext) > 1) axes.push_back(Axis::kContext);
  return axes;
}

int64_t Mesh::degree(Axis axis) const { return degrees_[index_of(axis)]; }

int64_t Mesh::coordinate_of(int64_t rank, Axis axis) const {
  return rank / stride_of(degrees_, axis) % degree(axis);
}

std::vector<int64_t> Mesh::group(const std::vector<Axis>& axes) const {
  check_axes(axes);
  int64_t first = rank_;
  for (Axis axis : axes) first -= coordinate(axis) * stride_of(degrees_, axis);
  std::vector<int64_t> ranks{first};
  for (Axis axis : axes) {
    const size_t faster = ranks.size();
    for (int64_t i = 1; i < degree(axis); ++i) {
      for (size_t j = 0; j < faster; ++j) {
        ranks.push_back(ranks[j] + i * stride_of(degrees_, axis));
      }
    }
  }
  return ranks;
}

std::vector<std::vector<int64_t>> Mesh::all_groups(const std::vector<Axis>& axes) const {
  std::vector<std::vector<int64_t>> groups;
  Mesh member = *this;
  for (member.rank_ = 0; member.rank_ < world_; ++member.rank_) {
    std::vector<int64_t> ranks = member.group(axes);
    if (ranks.front() == member.rank_) groups.push_back(std::move(ranks));
  }
  return groups;
}

int64_t Mesh::data_rank() const {
  return coordinate(Axis::kReplicate) * degree(Axis::kShard) + coordinate(Axis::kShard);
}

}  // namespace keyseat
