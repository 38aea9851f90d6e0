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
  int64_t local_count(const ParamSpec& spec) const {
    if (spec.domain != ParamDomain::kExpert) return spec.numel();
    return spec.numel() / (mesh_.degree(Axis::kExpert) * mesh_.degree(Axis::kExpertTensor));
  }
  // Elements in 64 bytes of the narrowest copy of the bucket.
  static int64_t alignment(const BucketLayout& bucket) {
    const size_t narrowest =
        std::min(c10::elementSize(bucket.gather_dtype), c10::elementSize(bucket.compute_dtype));
    return 64 / static_cast<int64_t>(narrowest);
  }

  int64_t unit_bytes(int unit) const {
    int64_t bytes = 0;
    for (const ParamSpec& spec : params(unit)) {
      const auto type = spec.keep_fp32 ? at::kFloat : rules_.gather_dtype;
      bytes += local_count(spec) * static_cast<int64_t>(c10::elementSize(type));
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
    const int index = used_elsewhere(unit, owner) ? new_bucket(unit, spec) : bucket_for(unit, spec);
    BucketLayout& bucket = layout_.buckets[index];
    bucket.owned = here(owner.unit);
    Slice slice;
    slice.ref = owner;
    slice.shape = spec.shape;
    slice.count = local_count(spec);
    slice.begin = bucket.elements;
    slice.run = slice.count;
    if (spec.domain == ParamDomain::kExpert) share_out(spec, slice);
    const int64_t step = alignment(bucket);
    bucket.elements += (slice.count + step - 1) / step * step;
    bucket.slices.push_back(std::move(slice));
    return {index, static_cast<int>(bucket.slices.size()) - 1};
  }

  // A block of experts, and of each part of the width an equal piece.
  void share_out(const ParamSpec& spec, Slice& slice) const {
    slice.shape[0] /= mesh_.degree(Axis::kExpert);
    slice.ways = mesh_.degree(Axis::kExpertTensor);
    slice.first = slice.count * slice.ways * mesh_.coordinate(Axis::kExpert);
    if (slice.ways == 1) return;
    slice.shape[spec.slice_dim] /= slice.ways;
    const auto parts = static_cast<int64_t>(std::max<size_t>(spec.parts.size(), 1));
    slice.run = slice.shape[spec.slice_dim] / parts;
    for (size_t dim = spec.slice_dim + 1; dim < slice.shape.size(); ++dim)
      slice.run *= slice.shape[dim];
    slice.first += slice.run * mesh_.coordinate(Axis::kExpertTensor);
  }

  int bucket_for(int unit, const ParamSpec& spec) {
    const std::array<int, 3> key{layout_.group_of[unit], static_cast<int>(spec.domain),
                                 static_cast<int>(spec.keep_fp32)};
    const auto [found, fresh] = shared_buckets_.try_emplace(key, -1);
    if (fresh) found->second = new_bucket(unit, spec);
    return found->second;
  }

  int new_bucket(int unit, const ParamSpec& spec) {
    BucketLayout bucket;
    bucket.group = layout_.group_of[unit];
    bucket.block = chain_.units()[unit].block;
    bucket.trained = chain_.units()[unit].trainable;
    bucket.keep_fp32 = spec.keep_fp32;
    bucket.domain = spec.domain;
    bucket.compute_dtype = spec.keep_fp32 ? at::kFloat : rules_.compute_dtype;
    bucket.gather_dtype = spec.keep_fp32 ? at::kFloat : rules_.gather_dtype;
    const Axis axis = spec.domain == ParamDomain::kExpert ? Axis::kExpertData : Axis::kShard;
    bucket.shards = mesh_.degree(axis);
    bucket.shard = mesh_.coordinate(axis);
    layout_.buckets.push_back(std::move(bucket));
    return static_cast<int>(layout_.buckets.size()) - 1;
  }

  const Chain& chain_;
  const LayoutRules& rules_;
  const Mesh& mesh_;
  ModelLayout layout_;
  std::map<std::pair<int, int>, Place> placed_;       // by owner
  std::map<std::array<int, 3>, int> shared_buckets_;  // by group, domain, keep_fp32
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
