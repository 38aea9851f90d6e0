#include "keyseat/sharding/rank_groups.h"

namespace keyseat::sharding {

RankGroups::RankGroups(const Mesh& mesh, Comm& comm) {
  const auto group = [&](Axis axis, CommChannel channel = CommChannel::kCompute) {
    return mesh.degree(axis) > 1 ? &comm.group(mesh.group({axis}), channel) : nullptr;
  };
  dense.shard = group(Axis::kShard);
  dense.gather = group(Axis::kShard, CommChannel::kParameters);
  dense.replicate = group(Axis::kReplicate);
  expert.shard = group(Axis::kExpertData);
  expert.gather = group(Axis::kExpertData, CommChannel::kParameters);
  const std::vector<int64_t> holders = mesh.group({Axis::kExpertTensor, Axis::kExpert});
  expert_slices = holders.size() > 1 ? &comm.group(holders) : nullptr;
}

}  // namespace keyseat::sharding
