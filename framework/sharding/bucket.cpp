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

// Elements of the piece from `first` on.
void fill(const at::Tensor& values, const Init& init, uint64_t seed, const Piece& piece,
          int64_t first) {
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
  for (const Piece::Run& run : piece.runs(first, values.numel()))
    fill_normal(host.narrow(0, run.in_piece - first, run.count), seed, init.std, run.in_whole);
  // At once: a piece that is cut by columns has as many runs as rows.
  if (!values.is_cpu()) values.copy_(host);
}

// Elements of every rank of `group`, one behind the other.
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
    const uint64_t own_seed = derive_seed(seed, chain.units()[ref.unit].param_names[ref.param]);
    fill(master_.narrow(0, own.in_shard, own.count), spec_of(chain, ref).init, own_seed,
         layout_.slices[i].piece(), own.in_slice);
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

at::Tensor Bucket::read(const at::Tensor& shard, int slice, const RankGroups& groups) const {
  const at::NoGradGuard no_grad;
  const Slice& facts = layout_.slices[slice];
  const RankGroups::Domain& ranks = groups.of(layout_.holders);
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
  const at::Tensor own_piece = gathered(ranks.shard, part, counts);
  const Pieces& pieces = facts.cut.pieces;
  if (pieces.count() == 1) return own_piece.view(pieces.shape);

  counts.clear();
  for (int64_t place = 0; place < pieces.count(); ++place)
    counts.push_back(pieces.at(place).numel());
  const at::Tensor all = gathered(ranks.pieces, own_piece, counts);
  at::Tensor whole = at::empty(pieces.shape, all.options());
  int64_t begin = 0;
  for (int64_t place = 0; place < pieces.count(); ++place) {
    pieces.at(place).put(all.narrow(0, begin, counts[place]), whole);
    begin += counts[place];
  }
  return whole;
}

void Bucket::write(const at::Tensor& shard, int slice, const at::Tensor& value) const {
  const at::NoGradGuard no_grad;
  const OwnRange own = own_range(slice);
  if (own.count == 0) return;
  const Slice& facts = layout_.slices[slice];
  // Of the mutation: the piece of the first place, and of it the first shard.
  const bool first = KEYSEAT_MUTATED("first_part_on_every_rank");
  const at::Tensor piece = first ? value.reshape({-1}) : facts.piece().take(value);
  shard.narrow(0, own.in_shard, own.count)
      .copy_(piece.narrow(0, first ? 0 : own.in_slice, own.count));
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
    const Piece piece = layout_.slices[i].piece();
    shard.begin = piece.is_one_run() ? piece.runs(own.in_slice, 1).front().in_whole : own.in_slice;
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
