#include "rank_groups.h"

namespace keyseat_strategy_fsdp {

using namespace keyseat;

RankGroups::RankGroups(const Mesh& mesh, Comm& comm) {
  const auto group = [&](Axis axis) {
    return mesh.degree(axis) > 1 ? &comm.group(mesh.group({axis})) : nullptr;
  };
  dense.shard = group(Axis::kShard);
  dense.replicate = group(Axis::kReplicate);
  expert.shard = group(Axis::kExpertData);
  expert_slices = group(Axis::kExpert);
}

}  // namespace keyseat_strategy_fsdp
