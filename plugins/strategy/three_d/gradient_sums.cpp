#include "gradient_sums.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "keyseat/memory.h"
#include "keyseat/mutation.h"

namespace keyseat_strategy_three_d {

using namespace keyseat;
using sharding::BucketLayout;
using sharding::GatheredBucket;

GradientSums::GradientSums(std::vector<std::unique_ptr<sharding::GatherGroup>>& groups,
                           std::vector<std::unique_ptr<sharding::Bucket>>& buckets,
                           const sharding::RankGroups& ranks, at::Device device, bool overlap)
    : groups_(groups), buckets_(buckets), ranks_(ranks), overlap_(overlap) {
  const MemoryScope scope(MemoryCategory::kGradients);
  for (const auto& group : groups) {
    int64_t elements = 0;
    for (const GatheredBucket* gathered : group->reduced())
      elements += gathered->bucket().layout().elements;
    memory_.push_back(at::empty({elements}, at::TensorOptions().dtype(at::kFloat).device(device)));
    group->place_gradients(memory_.back());
    group->set_sinks();
  }
}

void GradientSums::begin_window() {
  for (const at::Tensor& memory : memory_) memory.zero_();
  for (const auto& bucket : buckets_) {
    bucket->has_gradient = false;
    // Units add into these themselves.
    if (bucket->layout().trained && !bucket->layout().is_reduced()) bucket->gradient().zero_();
  }
}

void GradientSums::reduce(int group) {
  const auto& gathered_buckets = groups_[static_cast<size_t>(group)]->buckets();
  for (const auto& gathered : gathered_buckets) {
    sharding::Bucket& bucket = gathered->bucket();
    CommGroup* const copies = ranks_.of(bucket.layout().holders).replicate;
    if (bucket.layout().is_reduced()) {
      begin_scatter(*gathered);
    } else if (bucket.layout().trained && copies != nullptr && bucket.layout().group == group) {
      // Behind the last of the groups that use it: backward comes to the first one of them last.
      parts_.push_back({&bucket, {}, bucket.gradient(), nullptr});
      parts_.back().work = copies->all_reduce(bucket.gradient(), ReduceOp::kSum);
    }
  }
  if (!overlap_) complete_parts();
}

void GradientSums::begin_scatter(const GatheredBucket& gathered) {
  sharding::Bucket& bucket = gathered.bucket();
  const BucketLayout& layout = bucket.layout();
  // A parameter that two groups of the stage use (tied) comes from both.
  const bool first = !std::exchange(bucket.has_gradient, true);
  Part part{&bucket, gathered.gradient(),
            first ? bucket.gradient() : at::empty_like(bucket.gradient()), nullptr};
  part.work = ranks_.of(layout.holders)
                  .beside->reduce_scatter(part.output, part.input,
                                          std::vector<int64_t>(static_cast<size_t>(layout.shards),
                                                               layout.shard_elements()));
  parts_.push_back(std::move(part));
}

void GradientSums::complete_parts() {
  const at::NoGradGuard no_grad;
  for (Part& part : parts_) {
    part.work->wait();
    if (!part.output.is_same(part.bucket->gradient())) part.bucket->gradient().add_(part.output);
  }
  parts_.clear();
}

void GradientSums::finish() {
  complete_parts();
  for (const auto& bucket : buckets_) {
    if (!bucket->layout().trained) continue;
    // No row of this step ran backward.
    if (bucket->layout().is_reduced() && !bucket->has_gradient) bucket->gradient().zero_();
    take_shares(*bucket);
  }
}

// Of the sums, since a share is the same on all holders.
void GradientSums::take_shares(sharding::Bucket& bucket) {
  const at::NoGradGuard no_grad;
  for (int slice = 0; slice < static_cast<int>(bucket.layout().slices.size()); ++slice) {
    const double share = share_of(bucket.layout(), slice);
    if (share == 1) continue;
    const sharding::OwnRange own = bucket.own_range(slice);
    bucket.gradient().narrow(0, own.in_shard, own.count).mul_(share);
  }
}

double GradientSums::share_of(const BucketLayout& layout, int slice) const {
  using sharding::Holders;
  // Of the mutations: the mean over tensor ranks of what they have to add up.
  const CommGroup* const tensor = ranks_.of(Holders::kTensorSlice).pieces;
  const double mean = tensor == nullptr ? 1 : 1.0 / static_cast<double>(tensor->size());
  if (KEYSEAT_MUTATED("tensor_copies_summed")) return 1;
  if (KEYSEAT_MUTATED("tensor_shares_averaged") && layout.holders == Holders::kStage) return mean;
  if (KEYSEAT_MUTATED("experts_averaged_over_tensor") && layout.holders == Holders::kExpertSlice)
    return mean;
  return layout.slices[slice].cut.gradient_share;
}

}  // namespace keyseat_strategy_three_d
