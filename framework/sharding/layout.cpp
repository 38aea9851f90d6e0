#include "keyseat/sharding/layout.h"

namespace keyseat::sharding {

namespace {

class LayoutBuilder {
 public:
  LayoutBuilder(const Chain& chain, const LayoutRules& rules, const Mesh& mesh)
      : chain_(chain), rules_(rules), mesh_(mesh) {}

  ModelLayout build() {
    layout_.group_of.assign(chain_.size(), -1);
    layout_.places.resize(chain_.size());
    for (int unit = 0; unit < chain_.size(); ++unit) {
      if (!here(unit)) {
        open_block_.clear();  // what stands on both sides runs at different times
      } else if (!params(unit).empty()) {
        join_group(unit);
      }
    }
    for (int unit = 0; unit < chain_.size(); ++unit) {
      if (here(unit)) place_unit(unit);
    }
    for (BucketLayout& bucket : layout_.buckets) {
      const int64_t step = bucket.shards * alignment(bucket);
      bucket.elements = (bucket.elements + step - 1) / step * step;
    }
    return std::move(layout_);
  }

 private:
  const std::vector<ParamSpec>& params(int unit) const {
    return chain_.units()[unit].unit->spec().params;
  }
  bool here(int unit) const { return rules_.here.empty() || rules_.here[unit]; }
  ParamCut cut(int unit, int param) const {
    return cut_of(chain_.units()[unit].unit->spec(), param, mesh_);
  }
  // Elements in 64 bytes of the narrowest copy of the bucket.
  static int64_t alignment(const BucketLayout& bucket) {
    const size_t narrowest =
        std::min(c10::elementSize(bucket.gather_dtype), c10::elementSize(bucket.compute_dtype));
    return 64 / static_cast<int64_t>(narrowest);
  }

  int64_t unit_bytes(int unit) const {
    int64_t bytes = 0;
    for (int param = 0; param < static_cast<int>(params(unit).size()); ++param) {
      const auto type = params(unit)[param].keep_fp32 ? at::kFloat : rules_.gather_dtype;
      // Of the first place, which no other exceeds: ranks agree about the groups.
      bytes += cut(unit, param).pieces.at(0).numel() * static_cast<int64_t>(c10::elementSize(type));
    }
    return bytes;
  }

  // A unit joins the group of the unit before it while that group is small and is treated alike.
  void join_group(int unit) {
    const ChainUnit& facts = chain_.units()[unit];
    const bool joins = open_bytes_ < rules_.min_bytes && !layout_.groups.empty() &&
                       open_block_ == facts.block &&
                       layout_.groups.back().runs_backward == facts.runs_backward;
    if (!joins) {
      layout_.groups.emplace_back();
      layout_.groups.back().trained = facts.trainable;
      layout_.groups.back().runs_backward = facts.runs_backward;
      open_block_ = facts.block;
      open_bytes_ = 0;
    }
    layout_.groups.back().units.push_back(unit);
    layout_.group_of[unit] = static_cast<int>(layout_.groups.size()) - 1;
    open_bytes_ += unit_bytes(unit);
  }

  void place_unit(int unit) {
    for (int param = 0; param < static_cast<int>(params(unit).size()); ++param) {
      const ParamRef owner = chain_.units()[unit].owners[param];
      const auto [known, fresh] = placed_.try_emplace({owner.unit, owner.param});
      if (fresh) known->second = add_slice(unit, param);
      const Place place = known->second;
      layout_.places[unit].push_back(place);
      std::vector<int>& used = layout_.groups[layout_.group_of[unit]].buckets;
      if (std::find(used.begin(), used.end(), place.bucket) == used.end())
        used.push_back(place.bucket);
    }
  }

  // By a unit of another group, here or on other ranks.
  bool used_elsewhere(int unit, ParamRef owner) const {
    for (int other = 0; other < chain_.size(); ++other) {
      const std::vector<ParamRef>& used = chain_.units()[other].owners;
      if (layout_.group_of[other] != layout_.group_of[unit] &&
          std::find(used.begin(), used.end(), owner) != used.end())
        return true;
    }
    return false;
  }

  // `unit`: the first one here that uses the parameter.
  Place add_slice(int unit, int param) {
    const ParamSpec& spec = params(unit)[param];
    const ParamRef owner = chain_.units()[unit].owners[param];
    Slice slice;
    slice.ref = owner;
    slice.cut = cut(unit, param);
    slice.shape = slice.piece().shape();
    slice.count = slice.piece().numel();
    const int index = used_elsewhere(unit, owner) ? new_bucket(unit, spec, slice.cut.holders)
                                                  : bucket_for(unit, spec, slice.cut.holders);
    BucketLayout& bucket = layout_.buckets[index];
    bucket.owned = here(owner.unit);
    slice.begin = bucket.elements;
    const int64_t step = alignment(bucket);
    bucket.elements += (slice.count + step - 1) / step * step;
    bucket.slices.push_back(std::move(slice));
    return {index, static_cast<int>(bucket.slices.size()) - 1};
  }

  int bucket_for(int unit, const ParamSpec& spec, Holders holders) {
    const std::array<int, 3> key{layout_.group_of[unit], static_cast<int>(holders),
                                 static_cast<int>(spec.keep_fp32)};
    const auto [found, fresh] = shared_buckets_.try_emplace(key, -1);
    if (fresh) found->second = new_bucket(unit, spec, holders);
    return found->second;
  }

  int new_bucket(int unit, const ParamSpec& spec, Holders holders) {
    BucketLayout bucket;
    bucket.group = layout_.group_of[unit];
    bucket.block = chain_.units()[unit].block;
    bucket.trained = chain_.units()[unit].trainable;
    bucket.keep_fp32 = spec.keep_fp32;
    bucket.holders = holders;
    bucket.compute_dtype = spec.keep_fp32 ? at::kFloat : rules_.compute_dtype;
    bucket.gather_dtype = spec.keep_fp32 ? at::kFloat : rules_.gather_dtype;
    for (const Axis axis : holder_axes(holders, /*replicas=*/false)) {
      if (!rules_.sharded) break;
      bucket.shard += mesh_.coordinate(axis) * bucket.shards;
      bucket.shards *= mesh_.degree(axis);
    }
    layout_.buckets.push_back(std::move(bucket));
    return static_cast<int>(layout_.buckets.size()) - 1;
  }

  const Chain& chain_;
  const LayoutRules& rules_;
  const Mesh& mesh_;
  ModelLayout layout_;
  std::map<std::pair<int, int>, Place> placed_;       // by owner
  std::map<std::array<int, 3>, int> shared_buckets_;  // by group, holders, keep_fp32
  std::string open_block_;                            // of the group that units may still join
  int64_t open_bytes_ = 0;
};

}  // namespace

int64_t BucketLayout::slot_bytes() const {
  constexpr int64_t kAlignment = 256;  // bytes
  if (!is_gathered()) return 0;
  const int64_t bytes = elements * static_cast<int64_t>(c10::elementSize(compute_dtype));
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

ModelLayout ModelLayout::build(const Chain& chain, const LayoutRules& rules, const Mesh& mesh) {
  return LayoutBuilder(chain, rules, mesh).build();
}

}  // namespace keyseat::sharding
