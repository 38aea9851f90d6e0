// The whole values of a bucket, as the units of one gather group see them.
#pragma once

#include <memory>
#include <vector>

#include "keyseat/sharding/bucket.h"

namespace keyseat::sharding {

// All values are views of one storage. Gather and release put other memory under it, below
// autograd: no version is counted and no tensor is made, so what a graph saved is valid again once
// the values are gathered again.
class GatheredBucket {
 public:
  GatheredBucket(Bucket& bucket, const RankGroups& groups, at::Device device);

  Bucket& bucket() const { return bucket_; }
  // Begins to gather into `memory` (BucketLayout::slot_bytes), and makes what has landed readable.
  void begin(char* memory);
  void finish();
  // Unreadable from here; `poison` may be null.
  void release(char* poison);

  // Views of a slice, local shape: of the values, and of a whole fp32 gradient.
  at::Tensor value(int slice) const;
  at::Tensor gradient(int slice) const;
  // Whole gradient that units add into. Where the shard is the whole, that is the bucket's own.
  void set_gradient(at::Tensor whole) { gradient_ = std::move(whole); }
  const at::Tensor& gradient() const { return gradient_; }

 private:
  void point_to(char* memory);
  Bucket& bucket_;
  CommGroup* const group_;
  const at::Device device_;
  at::Tensor values_;   // [elements], compute dtype
  at::Tensor landing_;  // where the gather in flight lands, gather dtype
  at::Tensor target_;   // values_ as they will be, where landing_ is converted
  char* memory_ = nullptr;
  std::unique_ptr<Work> work_;
  at::Tensor gradient_;
};

}  // namespace keyseat::sharding
