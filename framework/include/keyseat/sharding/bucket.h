// This rank's shard of a bucket: master, the copy that is gathered, gradient, optimizer states.
#pragma once

#include <string>
#include <vector>

#include "keyseat/interfaces/optimizer.h"
#include "keyseat/sharding/layout.h"
#include "keyseat/sharding/rank_groups.h"

namespace keyseat::sharding {

// The part of a slice that lies in this rank's shard.
struct OwnRange {
  int64_t in_shard = 0;  // first element of the shard
  int64_t in_slice = 0;  // first element of the slice
  int64_t count = 0;
};

class Bucket {
 public:
  // Allocates the shard; the gradient where the bucket is trained. `masters`: where masters and
  // optimizer states live.
  Bucket(const BucketLayout& layout, at::Device device, at::Device masters);

  const BucketLayout& layout() const { return layout_; }
  // By the parameter's init, a function of seed and name; the same values under every layout.
  void initialise(const Chain& chain, int64_t seed);
  // What units compute with follows the masters.
  void refresh_copy();

  // [shard_elements] each. The source is what is gathered: the copy, or the master itself.
  const at::Tensor& source() const { return copy_.defined() ? copy_ : master_; }
  const at::Tensor& master() const { return master_; }
  const at::Tensor& gradient() const { return gradient_; }  // undefined where frozen
  // The gradient where the masters are: copied there by take_gradient().
  const at::Tensor& update_gradient() const {
    return host_gradient_.defined() ? host_gradient_ : gradient_;
  }
  void take_gradient();
  const std::vector<at::Tensor>& states() const { return states_; }
  void make_states(int64_t count);

  OwnRange own_range(int slice) const;
  // The whole parameter in global shape on every rank that asks: on all of them or on none.
  at::Tensor read(const at::Tensor& shard, int slice, const RankGroups& groups) const;
  // Each rank takes its part out of the whole parameter.
  void write(const at::Tensor& shard, int slice, const at::Tensor& value) const;
  // Optimizer shards of its slices, as far as they lie here.
  void add_shards(const Chain& chain, std::vector<OptimizerShard>& shards) const;

  // Of the current accumulation window: something has been reduced into the gradient.
  bool has_gradient = false;

 private:
  const BucketLayout& layout_;
  const at::Device device_;
  at::Tensor master_, copy_, gradient_, host_gradient_;
  std::vector<at::Tensor> states_;
};

}  // namespace keyseat::sharding
