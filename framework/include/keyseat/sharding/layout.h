// Where every parameter of a strategy lies: gather groups of units, and the flat buckets that are
// sharded. Plain arithmetic over ParamSpecs; allocates nothing, for any world size.
#pragma once

#include <string>
#include <vector>

#include "keyseat/chain.h"
#include "keyseat/mesh.h"
#include "keyseat/sharding/cut.h"

namespace keyseat::sharding {

// What the arithmetic depends on beside the chain and the mesh.
struct LayoutRules {
  int64_t min_bytes = 0;  // of a gather group: neighbouring units are merged until they have it
  at::ScalarType compute_dtype = at::kFloat, gather_dtype = at::kFloat;
  std::vector<bool> here = {};  // by unit: this rank runs it; empty: it runs all of them
  // Each holder of a piece has a shard of its master, gradient and states; else the whole of them.
  bool sharded = true;
};

// This rank's piece of a parameter, in a bucket.
struct Slice {
  ParamRef ref;                  // its owner
  ParamCut cut;                  // as its first user here is cut; that of all users is the same
  std::vector<int64_t> shape;    // of the piece
  int64_t begin = 0, count = 0;  // elements of the bucket

  Piece piece() const { return cut.pieces.at(cut.place); }
};

// A flat buffer of one dtype whose parameters have the same holders, cut into equal shards. A group
// has at most one of each; a parameter that other groups use too (tied) has a bucket of its own.
struct BucketLayout {
  int group = -1;
  std::string block;
  bool trained = false;
  bool owned = true;  // false: its owner's unit runs on other ranks, these shards follow theirs
  bool keep_fp32 = false;
  Holders holders = Holders::kStage;
  at::ScalarType gather_dtype = at::kFloat, compute_dtype = at::kFloat;
  std::vector<Slice> slices;      // each begins at a multiple of 64 bytes
  int64_t elements = 0;           // a multiple of `shards`, padding included
  int64_t shards = 1, shard = 0;  // how many, and which is this rank's

  int64_t shard_elements() const { return elements / shards; }
  int64_t shard_begin() const { return shard * shard_elements(); }
  // Whole values need memory beside the shard.
  bool is_gathered() const { return shards > 1 || gather_dtype != compute_dtype; }
  // That memory; buckets lie one behind the other in a slot.
  int64_t slot_bytes() const;
  // Its gradient is summed over ranks from a whole one; else units add into the shard itself.
  bool is_reduced() const { return trained && shards > 1; }
  bool has_copy() const { return gather_dtype != at::kFloat; }  // of the shard, beside the master
};

// Neighbouring units whose parameters are gathered and released together.
struct GroupLayout {
  std::vector<int> units;
  std::vector<int> buckets;  // its own, then those of tied parameters that it uses
  bool trained = false, runs_backward = false;
};

// Which slice of which bucket a unit's parameter is.
struct Place {
  int bucket = -1, slice = -1;
};

struct ModelLayout {
  std::vector<BucketLayout> buckets;
  std::vector<GroupLayout> groups;  // in chain order
  std::vector<int> group_of;        // by unit; -1: a unit without parameters, or of other ranks
  std::vector<std::vector<Place>> places;  // by unit and parameter; none for units of other ranks

  static ModelLayout build(const Chain& chain, const LayoutRules& rules, const Mesh& mesh);
};

}  // namespace keyseat::sharding
