#include "keyseat/sharding/bucket.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "keyseat/memory.h"
#include "keyseat/mutation.h"
#include "keyseat/random.h"

namespace keyseat::sharding {

namespace {

const ParamSpec& spec_of(const Chain& chain, ParamRef ref) {
  return chain.units()[ref.unit].unit->spec().params[ref.param];
}

void fill(const at::Tensor& values, const Init& init, uint64_t seed, int64_t first) {
  switch (init.kind) {
    case Init::Kind::kZeros:
      values.zero_();
      return;
    case Init::Kind::kOnes:
      values.fill_(1);
      return;
    case Init::Kind::kNormal:
      break;
  }
  const at::Tensor host = values.cpu();  // the same tensor where it is there already
  fill_normal(host, seed, init.std, first);
  if (!values.is_cpu()) values.copy_(host);
}

// The elements of a slice out of the flattened global parameter.
at::Tensor own_slice(const at::Tensor& whole, const Slice& slice) {
  if (slice.is_one_run()) return whole.narrow(0, slice.first, slice.count);
  const int64_t block = slice.count * slice.ways;  // of this rank's experts, whole
  const int64_t place = slice.first % block / slice.run;
  return whole.narrow(0, slice.first / block * block, block)
      .view({slice.count / slice.run, slice.ways, slice.run})
      .select(1, place)
      .reshape({-1});
}

// Rows of every rank of `group`, one behind the other.
at::Tensor gathered(CommGroup* group, const at::Tensor& own, const std::vector<int64_t>& counts) {
  if (group == nullptr) return own;
  const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  at::Tensor all = at::empty({sum}, own.options());
  group->all_gather(all, own.contiguous(), counts)->wait();
  return all;
}

}  // namespace

Bucket::Bucket(const BucketLayout& layout, at::Device device, at::Device masters)
    : layout_(layout), device_(device) {
  const std::vector<int64_t> size{layout.shard_elements()};
  const auto options = at::TensorOptions().dtype(at::kFloat);
  const bool apart = masters.type() != device.type();
  {
    const MemoryScope scope(MemoryCategory::kParameters);
    master_ = at::zeros(size, options.device(masters));
    if (layout.has_copy() || apart)
      copy_ = at::zeros(size, options.device(device).dtype(layout.gather_dtype));
  }
  if (!layout.trained) return;
  const MemoryScope scope(MemoryCategory::kGradients);
  gradient_ = at::zeros(size, options.device(device));
  if (apart) host_gradient_ = at::zeros(size, options.device(masters));
}

void Bucket::initialise(const Chain& chain, int64_t seed) {
  for (int i = 0; i < static_cast<int>(layout_.slices.size()); ++i) {
    const ParamRef ref = layout_.slices[i].ref;
    const OwnRange own = own_range(i);
    const Slice& facts = layout_.slices[i];
    const uint64_t own_seed = derive_seed(seed, chain.units()[ref.unit].param_names[ref.param]);
    for (int64_t done = 0; done < own.count;) {
      const int64_t local = own.in_slice + done;
      const int64_t count = std::min(own.count - done, facts.run - local % facts.run);
      fill(master_.narrow(0, own.in_shard + done, count), spec_of(chain, ref).init, own_seed,
           facts.global(local));
      done += count;
    }
  }
  refresh_copy();
}

void Bucket::refresh_copy() {
  if (copy_.defined()) copy_.copy_(master_);
}

void Bucket::take_gradient() {
  if (host_gradient_.defined()) host_gradient_.copy_(gradient_);
}

void Bucket::make_states(int64_t count) {
  const MemoryScope scope(MemoryCategory::kOptimizer);
  while (static_cast<int64_t>(states_.size()) < count) {
    states_.push_back(at::zeros({layout_.shard_elements()}, master_.options()));
  }
}

OwnRange Bucket::own_range(int slice) const {
  const Slice& facts = layout_.slices[slice];
  const int64_t shard_begin = layout_.shard_begin();
  const int64_t begin = std::max(facts.begin, shard_begin);
  const int64_t end = std::min(facts.begin + facts.count, shard_begin + layout_.shard_elements());
  if (begin >= end) return {};
  return {begin - shard_begin, begin - facts.begin, end - begin};
}

at::Tensor Bucket::read(const at::Tensor& shard, int slice, const ParamSpec& spec,
                        const RankGroups& groups) const {
  const at::NoGradGuard no_grad;
  const Slice& facts = layout_.slices[slice];
  std::vector<int64_t> counts;
  for (int64_t rank = 0; rank < layout_.shards; ++rank) {
    const int64_t begin = rank * layout_.shard_elements();
    const int64_t end = begin + layout_.shard_elements();
    counts.push_back(std::max<int64_t>(
        0, std::min(end, facts.begin + facts.count) - std::max(begin, facts.begin)));
  }
  const OwnRange own = own_range(slice);
  // Communicators of a device move its memory only.
  const at::Tensor part = shard.narrow(0, own.in_shard, own.count).to(device_);
  at::Tensor values = gathered(groups.of(layout_.domain).shard, part, counts);
  if (layout_.domain == ParamDomain::kExpert && groups.expert_slices != nullptr) {
    const std::vector<int64_t> equal(static_cast<size_t>(groups.expert_slices->size()),
                                     facts.count);
    values = gathered(groups.expert_slices, values, equal);
  }
  if (facts.is_one_run()) return values.view(spec.shape);
  // By block of experts, then by rank of each; the pieces of every run lie side by side.
  return values.view({-1, facts.ways, facts.count / facts.run, facts.run})
      .transpose(1, 2)
      .reshape(spec.shape);
}

void Bucket::write(const at::Tensor& shard, int slice, const at::Tensor& value) const {
  const at::NoGradGuard no_grad;
  const OwnRange own = own_range(slice);
  if (own.count == 0) return;
  at::Tensor part =
      own_slice(value.reshape({-1}), layout_.slices[slice]).narrow(0, own.in_slice, own.count);
  if (KEYSEAT_MUTATED("first_part_on_every_rank"))
    part = value.reshape({-1}).narrow(0, 0, own.count);
  shard.narrow(0, own.in_shard, own.count).copy_(part);
}

void Bucket::add_shards(const Chain& chain, std::vector<OptimizerShard>& shards) const {
  for (int i = 0; i < static_cast<int>(layout_.slices.size()); ++i) {
    const ParamRef ref = layout_.slices[i].ref;
    const OwnRange own = own_range(i);
    if (own.count == 0) continue;
    const auto part = [&](const at::Tensor& flat) {
      return flat.narrow(0, own.in_shard, own.count);
    };
    OptimizerShard shard;
    shard.spec = &spec_of(chain, ref);
    shard.name = chain.units()[ref.unit].param_names[ref.param];
    const Slice& facts = layout_.slices[i];
    shard.begin = facts.is_one_run() ? facts.global(own.in_slice) : own.in_slice;
    shard.end = shard.begin + own.count;
    shard.master = part(master_);
    shard.grad = part(update_gradient());
    for (const at::Tensor& state : states_) shard.state.push_back(part(state));
    // A copy on another device is refreshed behind the update.
    if (copy_.defined() && !host_gradient_.defined()) shard.compute = part(copy_);
    shards.push_back(std::move(shard));
  }
}

}  // namespace keyseat::sharding
