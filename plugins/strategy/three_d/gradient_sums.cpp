#include "gradient_sums.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "keyseat/memory.h"

namespace keyseat_strategy_three_d {

using namespace keyseat;
using sharding::BucketLayout;
using sharding::GatheredBucket;

GradientSums::GradientSums(std::vector<std::unique_ptr<sharding::GatherGroup>>& groups,
                           std::vector<std::unique_ptr<sharding::Bucket>>& buckets,
                           const sharding::RankGroups& ranks, at::Device device)
    : groups_(groups), buckets_(buckets), ranks_(ranks) {
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
  for (const GatheredBucket* gathered : groups_[static_cast<size_t>(group)]->reduced()) {
    sharding::Bucket& bucket = gathered->bucket();
    const BucketLayout& layout = bucket.layout();
    // A parameter that two groups of the stage use (tied) comes from both.
    const bool first = !std::exchange(bucket.has_gradient, true);
    Part part{&bucket, gathered->gradient(),
              first ? bucket.gradient() : at::empty_like(bucket.gradient()), nullptr};
    part.work = ranks_.of(layout.domain)
                    .shard->reduce_scatter(part.output, part.input,
                                           std::vector<int64_t>(static_cast<size_t>(layout.shards),
                                                                layout.shard_elements()));
    parts_.push_back(std::move(part));
  }
}

void GradientSums::finish() {
  const at::NoGradGuard no_grad;
  for (Part& part : parts_) {
    part.work->wait();
    if (!part.output.is_same(part.bucket->gradient())) part.bucket->gradient().add_(part.output);
  }
  parts_.clear();
  for (const auto& bucket : buckets_) {
    // No row of this step ran backward.
    if (bucket->layout().is_reduced() && !bucket->has_gradient) bucket->gradient().zero_();
  }
}

}  // namespace keyseat_strategy_three_d
