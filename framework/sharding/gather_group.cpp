#include "keyseat/sharding/gather_group.h"

#include <ATen/core/grad_mode.h>

namespace keyseat::sharding {

GatherGroup::GatherGroup(const Chain& chain, const ModelLayout& layout, int index,
                         const std::vector<std::unique_ptr<Bucket>>& buckets,
                         const RankGroups& groups, at::Device device)
    : layout_(layout.groups[index]) {
  std::map<int, GatheredBucket*> by_index;
  for (int bucket : layout_.buckets) {
    buckets_.push_back(std::make_unique<GatheredBucket>(*buckets[bucket], groups, device));
    by_index[bucket] = buckets_.back().get();
    if (layout.buckets[bucket].is_reduced()) reduced_.push_back(buckets_.back().get());
  }
  const at::NoGradGuard no_grad;
  for (int unit : layout_.units) {
    std::vector<ParamHandle> trained, untracked;
    for (size_t param = 0; param < layout.places[unit].size(); ++param) {
      const Place place = layout.places[unit][param];
      for (const bool tracked : {true, false}) {
        auto state = c10::make_intrusive<ParamState>();
        state->index = static_cast<int64_t>(param);
        state->value = by_index[place.bucket]->value(place.slice);
        if (tracked && layout_.trained) {
          state->value.set_requires_grad(true);
          sinks_.push_back({state, by_index[place.bucket], place.slice});
        }
        (tracked ? trained : untracked).emplace_back(std::move(state));
      }
    }
    const std::vector<ParamSpec>* const specs = &chain.units()[unit].unit->spec().params;
    params_[unit] = {Params(specs, std::move(trained)), Params(specs, std::move(untracked))};
  }
}

void GatherGroup::begin_gather(char* memory) {
  for (const auto& bucket : buckets_) {
    bucket->begin(memory);
    const int64_t bytes = bucket->bucket().layout().slot_bytes();
    if (bytes > 0) memory += bytes;
  }
}

void GatherGroup::finish_gather() {
  for (const auto& bucket : buckets_) bucket->finish();
}

void GatherGroup::release(char* poison) {
  for (const auto& bucket : buckets_) bucket->release(poison);
}

void GatherGroup::place_gradients(const at::Tensor& memory) {
  int64_t begin = 0;
  for (GatheredBucket* bucket : reduced_) {
    const int64_t count = bucket->bucket().layout().elements;
    bucket->set_gradient(memory.narrow(0, begin, count));
    begin += count;
  }
}

void GatherGroup::set_sinks() {
  for (const Handle& handle : sinks_) handle.state->sink = handle.bucket->gradient(handle.slice);
}

void GatherGroup::clear_sinks() {
  for (const Handle& handle : sinks_) handle.state->sink.reset();
}

}  // namespace keyseat::sharding
