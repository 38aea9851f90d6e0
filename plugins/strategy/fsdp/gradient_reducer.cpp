#include "gradient_reducer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "keyseat/memory.h"
#include "keyseat/mutation.h"

namespace keyseat_strategy_fsdp {

using namespace keyseat;

GradientReducer::GradientReducer(std::vector<std::unique_ptr<GatherGroup>>& groups,
                                 std::vector<std::unique_ptr<Bucket>>& buckets,
                                 const RankGroups& ranks, const Settings& settings,
                                 const SlotPlan& plan, at::Device device, Trace& trace,
                                 std::vector<std::string> names)
    : groups_(groups),
      buckets_(buckets),
      ranks_(ranks),
      settings_(settings),
      trace_(trace),
      names_(std::move(names)),
      plan_(plan) {
  const MemoryScope scope(MemoryCategory::kGradients);
  for (int64_t size : plan.gradient_elements) {
    memory_.push_back(at::empty({size}, at::TensorOptions().dtype(at::kFloat).device(device)));
  }
  for (size_t group = 0; group < groups.size(); ++group) {
    const int slot = plan.gradient_slot[group];
    if (slot >= 0) groups[group]->place_gradients(memory_[slot]);
  }
}

void GradientReducer::begin_window() {
  for (const auto& bucket : buckets_) {
    bucket->has_gradient = false;
    // Units add into these, or nothing may ever come.
    if (bucket->layout().trained && !bucket->layout().is_reduced()) bucket->gradient().zero_();
  }
  if (settings_.accumulate_sharded) return;
  for (const at::Tensor& memory : memory_) memory.zero_();
}

void GradientReducer::before_backward(int group) {
  if (plan_.gradient_slot[group] >= 0 && settings_.accumulate_sharded) {
    const auto uses_slot = [&](const Pending& pending) {
      return plan_.gradient_slot[pending.group] == plan_.gradient_slot[group];
    };
    while (std::any_of(pending_.begin(), pending_.end(), uses_slot)) complete_first();
    for (const GatheredBucket* bucket : groups_[group]->reduced()) {
      if (!KEYSEAT_MUTATED("gradients_not_cleared")) bucket->gradient().zero_();
    }
  }
  groups_[group]->set_sinks();
}

void GradientReducer::after_backward(int group, bool last) {
  groups_[group]->clear_sinks();
  if (plan_.gradient_slot[group] >= 0 && (settings_.accumulate_sharded || last)) reduce(group);
}

bool GradientReducer::nothing_came(const GatherGroup& group) {
  return std::none_of(group.reduced().begin(), group.reduced().end(),
                      [](const GatheredBucket* gathered) {
                        return gathered->gradient().count_nonzero().item<int64_t>() > 0;
                      });
}

void GradientReducer::reduce(int group) {
  const at::NoGradGuard no_grad;
  trace_.begin(Trace::Lane::kReduce, names_[group]);
  if (KEYSEAT_MUTATED("reduce_only_what_came") && nothing_came(*groups_[group])) return;
  Pending pending{group, {}};
  for (const GatheredBucket* gathered : groups_[group]->reduced()) {
    Bucket& bucket = gathered->bucket();
    const BucketLayout& layout = bucket.layout();
    Part part{&bucket, gathered->gradient().to(settings_.reduce_dtype), {}, false, nullptr};
    // The first contribution of the window lands in the shard itself.
    part.add = std::exchange(bucket.has_gradient, true) && !KEYSEAT_MUTATED("last_row_only");
    const bool direct = !part.add && settings_.reduce_dtype == at::kFloat;
    part.output =
        direct ? bucket.gradient() : at::empty({layout.shard_elements()}, part.input.options());
    part.work = ranks_.of(layout.holders)
                    .shard->reduce_scatter(part.output, part.input,
                                           std::vector<int64_t>(static_cast<size_t>(layout.shards),
                                                                layout.shard_elements()));
    pending.parts.push_back(std::move(part));
  }
  pending_.push_back(std::move(pending));
}

void GradientReducer::complete_first() {
  const at::NoGradGuard no_grad;
  Pending& pending = pending_.front();
  for (Part& part : pending.parts) {
    part.work->wait();
    const at::Tensor& gradient = part.bucket->gradient();
    if (part.add) {
      gradient.add_(part.output);
    } else if (!part.output.is_same(gradient)) {
      gradient.copy_(part.output);
    }
  }
  trace_.end(Trace::Lane::kReduce, names_[pending.group]);
  pending_.pop_front();
}

void GradientReducer::finish() {
  while (!pending_.empty()) complete_first();
  for (const auto& bucket : buckets_) {
    const BucketLayout& layout = bucket->layout();
    // No row of this step ran backward.
    if (layout.is_reduced() && !bucket->has_gradient) bucket->gradient().zero_();
  }
  sum_over_replicas();
  if (KEYSEAT_MUTATED("replicas_summed_twice")) sum_over_replicas();
  if (KEYSEAT_MUTATED("experts_times_ep")) scale_experts(/*one_shard_only=*/false);
  if (KEYSEAT_MUTATED("one_shard_times_ep")) scale_experts(/*one_shard_only=*/true);
  for (const auto& bucket : buckets_) bucket->take_gradient();
}

// Of the mutations: what a division by the wrong number of ranks comes to.
void GradientReducer::scale_experts(bool one_shard_only) {
  const at::NoGradGuard no_grad;
  const CommGroup* const expert_ranks = ranks_.of(Holders::kExpertSlice).pieces;
  for (const auto& bucket : buckets_) {
    const BucketLayout& layout = bucket->layout();
    const bool scaled = layout.trained && layout.holders == Holders::kExpertSlice &&
                        (layout.shards == 1 || !one_shard_only);
    if (scaled && expert_ranks != nullptr)
      bucket->gradient().mul_(static_cast<double>(expert_ranks->size()));
  }
}

void GradientReducer::sum_over_replicas() {
  const at::NoGradGuard no_grad;
  std::vector<Part> parts;
  for (const auto& bucket : buckets_) {
    CommGroup* const replicas = ranks_.of(bucket->layout().holders).replicate;
    if (replicas == nullptr || !bucket->layout().trained) continue;
    Part part{bucket.get(), {}, bucket->gradient().to(settings_.reduce_dtype), false, nullptr};
    part.work = replicas->all_reduce(part.output, ReduceOp::kSum);
    parts.push_back(std::move(part));
  }
  for (Part& part : parts) {
    part.work->wait();
    if (!part.output.is_same(part.bucket->gradient())) part.bucket->gradient().copy_(part.output);
  }
}

}  // namespace keyseat_strategy_fsdp
