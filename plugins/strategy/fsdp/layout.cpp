#include "layout.h"

namespace keyseat_strategy_fsdp {

using namespace keyseat;

namespace {

class LayoutBuilder {
 public:
  LayoutBuilder(const Chain& chain, const Settings& settings, const Mesh& mesh,
                at::ScalarType compute_dtype)
      : chain_(chain), settings_(settings), mesh_(mesh), compute_dtype_(compute_dtype) {}

  ModelLayout build() {
    layout_.group_of.assign(chain_.size(), -1);
    layout_.places.resize(chain_.size());
    for (int unit = 0; unit < chain_.size(); ++unit) {
      if (!params(unit).empty()) join_group(unit);
    }
    for (int unit = 0; unit < chain_.size(); ++unit) place_unit(unit);
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
  bool owns(int unit, int param) const {
    return chain_.units()[unit].owners[param] == ParamRef{unit, param};
  }
  int64_t local_count(const ParamSpec& spec) const {
    return spec.domain == ParamDomain::kExpert ? spec.numel() / mesh_.degree(Axis::kExpert)
                                               : spec.numel();
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
      const auto type = spec.keep_fp32 ? at::kFloat : settings_.gather_dtype(compute_dtype_);
      bytes += local_count(spec) * static_cast<int64_t>(c10::elementSize(type));
    }
    return bytes;
  }

  // A unit joins the group of the unit before it while that group is small and is treated alike.
  void join_group(int unit) {
    const ChainUnit& facts = chain_.units()[unit];
    const bool joins = open_bytes_ < settings_.min_bytes && !layout_.groups.empty() &&
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
      // Owners come first in the chain, so theirs is placed already.
      const Place place =
          owns(unit, param) ? add_slice(unit, param) : layout_.places[owner.unit][owner.param];
      layout_.places[unit].push_back(place);
      std::vector<int>& used = layout_.groups[layout_.group_of[unit]].buckets;
      if (std::find(used.begin(), used.end(), place.bucket) == used.end())
        used.push_back(place.bucket);
    }
  }

  bool used_elsewhere(int unit, int param) const {
    for (int other = 0; other < chain_.size(); ++other) {
      for (const ParamRef& owner : chain_.units()[other].owners) {
        if (owner == ParamRef{unit, param} && layout_.group_of[other] != layout_.group_of[unit])
          return true;
      }
    }
    return false;
  }

  Place add_slice(int unit, int param) {
    const ParamSpec& spec = params(unit)[param];
    const int index = used_elsewhere(unit, param) ? new_bucket(unit, spec) : bucket_for(unit, spec);
    BucketLayout& bucket = layout_.buckets[index];
    Slice slice;
    slice.ref = {unit, param};
    slice.shape = spec.shape;
    slice.count = local_count(spec);
    slice.begin = bucket.elements;
    if (spec.domain == ParamDomain::kExpert) {
      slice.shape[0] /= mesh_.degree(Axis::kExpert);
      slice.first = slice.count * mesh_.coordinate(Axis::kExpert);
    }
    const int64_t step = alignment(bucket);
    bucket.elements += (slice.count + step - 1) / step * step;
    bucket.slices.push_back(std::move(slice));
    return {index, static_cast<int>(bucket.slices.size()) - 1};
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
    bucket.compute_dtype = spec.keep_fp32 ? at::kFloat : compute_dtype_;
    bucket.gather_dtype = spec.keep_fp32 ? at::kFloat : settings_.gather_dtype(compute_dtype_);
    const Axis axis = spec.domain == ParamDomain::kExpert ? Axis::kExpertData : Axis::kShard;
    bucket.shards = mesh_.degree(axis);
    bucket.shard = mesh_.coordinate(axis);
    layout_.buckets.push_back(std::move(bucket));
    return static_cast<int>(layout_.buckets.size()) - 1;
  }

  const Chain& chain_;
  const Settings& settings_;
  const Mesh& mesh_;
  const at::ScalarType compute_dtype_;
  ModelLayout layout_;
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

ModelLayout ModelLayout::build(const Chain& chain, const Settings& settings, const Mesh& mesh,
                               at::ScalarType compute_dtype) {
  return LayoutBuilder(chain, settings, mesh, compute_dtype).build();
}

}  // namespace keyseat_strategy_fsdp
