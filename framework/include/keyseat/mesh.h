// The process mesh: named axes over the ranks of a run, dense and expert views folded over the same
// ranks.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "keyseat/export.h"
#include "keyseat/status.h"
#include "keyseat/tensors.h"

namespace keyseat {

KEYSEAT_API const char* axis_name(
    Axis axis);  // option names: "pipeline", "replicate", "shard", "context", ...

// Degrees of a mesh. World = pipeline * replicate * shard * context * tensor = pipeline *
// expert_data * expert * expert_tensor.
struct MeshDegrees {
  int64_t tensor = 1, context = 1, shard = 1, replicate = 1, pipeline = 1;
  int64_t expert = 1, expert_tensor = 1;  // expert_data is derived
  // Between the tensor-parallel parts of a layer each tensor rank holds a slice of the rows.
  bool sequence_parallel = false;
  // Keys and values pass round the context ranks; else every rank gathers those of all.
  bool context_ring = false;
};

// Pure arithmetic, for any world size; holds no communicator. Rank order, fastest first:
// dense (tensor, context, shard, replicate, pipeline), expert (expert_tensor, expert, expert_data,
// pipeline).
class KEYSEAT_API Mesh {
 public:
  Mesh() = default;  // one rank
  // Problems (C4) where the degrees do not divide the world; then the mesh is that of one rank.
  static Mesh build(const MeshDegrees& degrees, int64_t world, int64_t rank, int64_t ranks_per_node,
                    Problems& problems);

  int64_t world() const { return world_; }
  int64_t rank() const { return rank_; }
  int64_t ranks_per_node() const { return ranks_per_node_; }
  int64_t degree(Axis axis) const;
  int64_t coordinate(Axis axis) const { return coordinate_of(rank_, axis); }
  int64_t coordinate_of(int64_t rank, Axis axis) const;
  // Global ranks that share this rank's coordinates on all other axes of the same view (dense or
  // expert), in order of the product of `axes`, the first one fastest. Axes of both views may not
  // be mixed (pipeline belongs to both).
  std::vector<int64_t> group(const std::vector<Axis>& axes) const;
  // All groups of the world for these axes, each once, in order of their first rank.
  std::vector<std::vector<int64_t>> all_groups(const std::vector<Axis>& axes) const;
  // False where tensor is 1.
  bool sequence_parallel() const { return sequence_parallel_; }
  bool context_ring() const { return context_ring_; }
  // The axes of (context, tensor) over which tensors of this layout differ, where they have more
  // than one rank.
  std::vector<Axis> split_axes(Layout layout) const;
  int64_t data_degree() const { return degree(Axis::kReplicate) * degree(Axis::kShard); }
  int64_t data_rank() const;

 private:
  int64_t world_ = 1, rank_ = 0, ranks_per_node_ = 1;
  bool sequence_parallel_ = false, context_ring_ = false;
  std::array<int64_t, 8> degrees_{1, 1, 1, 1, 1, 1, 1, 1};  // by Axis
};

}  // namespace keyseat
