#include "keyseat/sharding/rank_groups.h"

namespace keyseat::sharding {

RankGroups::RankGroups(const Mesh& mesh, Comm& comm, bool sharded) {
  const auto group = [&](const std::vector<Axis>& axes,
                         CommChannel channel = CommChannel::kCompute) -> CommGroup* {
    const std::vector<int64_t> ranks = mesh.group(axes);
    return ranks.size() > 1 ? &comm.group(ranks, channel) : nullptr;
  };
  for (const Holders holders : kAllHolders) {
    Domain& domain = domains_[static_cast<size_t>(holders)];
    const std::vector<Axis> axes = holder_axes(holders, /*replicas=*/false);
    if (sharded) {
      domain.shard = group(axes);
      domain.beside = group(axes, CommChannel::kParameters);
      if (holders != Holders::kExpertSlice) domain.replicate = group({Axis::kReplicate});
    } else {
      domain.replicate = group(holder_axes(holders, /*replicas=*/true), CommChannel::kParameters);
    }
    domain.pieces = group(piece_axes(holders));
  }
}

}  // namespace keyseat::sharding
