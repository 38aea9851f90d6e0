// How the parameters of a unit are cut over the ranks of a pipeline stage, who holds a piece, and
// what the gradients of its holders come to. Plain arithmetic, for any world size.
#pragma once

#include "keyseat/interfaces/block.h"
#include "keyseat/mesh.h"
#include "keyseat/sharding/pieces.h"

namespace keyseat::sharding {

// The ranks of a stage that hold one piece of a parameter: all of them, those with one tensor
// coordinate, or those with the same slice of the same experts.
enum class Holders { kStage, kTensorSlice, kExpertSlice };
inline constexpr Holders kAllHolders[] = {Holders::kStage, Holders::kTensorSlice,
                                          Holders::kExpertSlice};

// Axes over which the holders of a piece lie, and over which the pieces of a parameter do; both in
// the order of ranks in their groups. `replicas`: with the ranks of the axis replicate, each group
// of which holds a copy of everything (those of an expert count as holders already).
std::vector<Axis> holder_axes(Holders holders, bool replicas);
std::vector<Axis> piece_axes(Holders holders);

// Of one parameter under a mesh.
struct ParamCut {
  Holders holders = Holders::kStage;
  Pieces pieces;
  int64_t place = 0;  // of this rank's piece
  // The gradients of all holders are summed. Where a holder is given the same rows as others, each
  // has the whole gradient, of which this share counts.
  double gradient_share = 1;
};
ParamCut cut_of(const UnitSpec& unit, int param, const Mesh& mesh);

// The first parameter that the degree does not divide and that asks for kReplicateUnit, so that
// every dense parameter of the unit is whole; null where there is none.
const ParamSpec* replicating_param(const UnitSpec& unit, int64_t tensor);

// Of what a unit keeps of a row for its backward, and of its work on the row: the part of one rank
// out of those that share the row. What tensor ranks keep alike is not told from what they share,
// so without sequence parallel, and for images, each is taken to keep all.
double kept_share(const UnitSpec& unit, const Mesh& mesh);
double work_share(const UnitSpec& unit, const Mesh& mesh);

bool has_split(const ParamSpec& param);  // it can be cut
bool divides(const TensorSplit& split, int64_t degree);

}  // namespace keyseat::sharding
