// Units that are gathered together: their parameters as they see them.
#pragma once

#include <memory>
#include <vector>

#include "keyseat/sharding/gathered_bucket.h"

namespace keyseat::sharding {

class GatherGroup {
 public:
  GatherGroup(const Chain& chain, const ModelLayout& layout, int index,
              const std::vector<std::unique_ptr<Bucket>>& buckets, const RankGroups& groups,
              at::Device device);

  const GroupLayout& layout() const { return layout_; }
  // Handles of a unit whose values are autograd leaves where it is trained, and the same without.
  const Params& trained(int unit) const { return params_.at(unit).trained; }
  const Params& untracked(int unit) const { return params_.at(unit).untracked; }

  void begin_gather(char* memory);
  void finish_gather();
  void release(char* poison);

  const std::vector<std::unique_ptr<GatheredBucket>>& buckets() const { return buckets_; }
  // Those whose gradient units cannot add into the shard itself.
  const std::vector<GatheredBucket*>& reduced() const { return reduced_; }
  // The whole gradients lie here, behind one another.
  void place_gradients(const at::Tensor& memory);
  // The sinks of all trained parameters, from a unit's backward to the end of the group's.
  void set_sinks();
  void clear_sinks();

 private:
  struct Handle {
    c10::intrusive_ptr<ParamState> state;
    GatheredBucket* bucket;
    int slice;
  };
  struct UnitParams {
    Params trained, untracked;
  };
  const GroupLayout& layout_;
  std::vector<std::unique_ptr<GatheredBucket>> buckets_;
  std::vector<GatheredBucket*> reduced_;
  std::vector<Handle> sinks_;         // of the trained parameters
  std::map<int, UnitParams> params_;  // by unit; addresses stay
};

}  // namespace keyseat::sharding
