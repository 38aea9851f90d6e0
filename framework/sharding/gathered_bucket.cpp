#include "keyseat/sharding/gathered_bucket.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Storage.h>

namespace keyseat::sharding {

namespace {

// A tensor whose storage has a size, but no memory yet.
at::Tensor without_memory(const BucketLayout& layout, at::Device device) {
  const c10::Storage storage(
      c10::Storage::use_byte_size_t(),
      static_cast<size_t>(layout.elements) * c10::elementSize(layout.compute_dtype),
      at::DataPtr(nullptr, device), /*allocator=*/nullptr,
      /*resizable=*/false);
  at::Tensor tensor =
      at::empty({0}, at::TensorOptions().dtype(layout.compute_dtype).device(device));
  return tensor.set_(storage, 0, {layout.elements}, {1});
}

}  // namespace

GatheredBucket::GatheredBucket(Bucket& bucket, const RankGroups& groups, at::Device device)
    : bucket_(bucket), group_(groups.of(bucket.layout().holders).beside), device_(device) {
  const BucketLayout& layout = bucket.layout();
  values_ = layout.is_gathered() ? without_memory(layout, device) : bucket.source();
  if (layout.shards == 1) gradient_ = bucket.gradient();
}

void GatheredBucket::begin(char* memory) {
  const BucketLayout& layout = bucket_.layout();
  if (!layout.is_gathered()) return;
  const at::NoGradGuard no_grad;
  memory_ = memory;
  target_ = at::from_blob(memory, {layout.elements},
                          at::TensorOptions().dtype(layout.compute_dtype).device(device_));
  if (group_ == nullptr) {
    landing_ = bucket_.source();
    return;
  }
  const bool converts = layout.gather_dtype != layout.compute_dtype;
  landing_ = converts ? at::empty({layout.elements}, target_.options().dtype(layout.gather_dtype))
                      : target_;
  work_ = group_->all_gather(
      landing_, bucket_.source(),
      std::vector<int64_t>(static_cast<size_t>(layout.shards), layout.shard_elements()));
}

void GatheredBucket::finish() {
  if (!bucket_.layout().is_gathered()) return;
  const at::NoGradGuard no_grad;
  if (work_ != nullptr) work_->wait();
  work_.reset();
  if (!landing_.is_same(target_)) target_.copy_(landing_);
  landing_.reset();
  target_.reset();
  point_to(memory_);
}

void GatheredBucket::release(char* poison) {
  if (bucket_.layout().is_gathered()) point_to(poison);
}

void GatheredBucket::point_to(char* memory) {
  values_.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(memory, device_));
}

at::Tensor GatheredBucket::value(int slice) const {
  const Slice& facts = bucket_.layout().slices[slice];
  return values_.narrow(0, facts.begin, facts.count).view(facts.shape).detach();
}

at::Tensor GatheredBucket::gradient(int slice) const {
  const Slice& facts = bucket_.layout().slices[slice];
  return gradient_.narrow(0, facts.begin, facts.count).view(facts.shape);
}

}  // namespace keyseat::sharding
