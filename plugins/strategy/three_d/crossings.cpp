#include "crossings.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace keyseat_strategy_three_d {

using namespace keyseat;

namespace {

bool has_fixed_size(const TensorSpec& spec) {
  return std::all_of(spec.dims.begin(), spec.dims.end(),
                     [](const Dim& dim) { return dim.symbol == DimSymbol::kConstant; });
}

std::vector<Parcel> parcels_of(const Chain& chain, const std::vector<int>& versions,
                               at::ScalarType compute_dtype) {
  std::vector<Parcel> parcels;
  for (int version : versions) {
    const TensorSpec& spec = chain.versions()[version].spec;
    const at::ScalarType dtype = spec.dtype.value_or(compute_dtype);
    const bool packed = has_fixed_size(spec);
    const auto joined = std::find_if(parcels.begin(), parcels.end(), [&](const Parcel& parcel) {
      return packed && parcel.packed && parcel.dtype == dtype;
    });
    if (joined != parcels.end()) {
      joined->versions.push_back(version);
    } else {
      parcels.push_back({{version}, dtype, packed});
    }
  }
  return parcels;
}

int64_t elements(const std::vector<int64_t>& shape) { return c10::multiply_integers(shape); }

}  // namespace

RowSizes::RowSizes(const Row& row, const Mesh& mesh)
    : samples_(static_cast<int64_t>(row.facts.cu_seqlens.size()) - 1) {
  // Like every batch tensor, it need only be there where a unit reads it.
  const at::Tensor logit_rows = row.tensors.get("logit_rows");
  if (logit_rows.defined()) logit_rows_ = logit_rows.size(0);
  const RowFacts& facts = row.facts;
  const RowShare& share = facts.share;
  const int64_t rows = facts.row_tokens(), images = static_cast<int64_t>(facts.grid_thw.size()) / 3;
  const int64_t patches = facts.counts.patches, visual = facts.counts.visual_tokens;
  if (share.visual_count.empty()) {  // all of it is here
    tokens_.fill(rows);
    patches_.fill(patches);
    visual_tokens_.fill(visual);
    images_.fill(images);
    return;
  }
  const auto sum = [](const std::vector<int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), int64_t{0});
  };
  const auto own_visual = static_cast<int64_t>(share.own_visual.size());
  tokens_ = {share.row_tokens, rows, share.row_tokens / mesh.degree(Axis::kContext), -1};
  patches_ = {sum(share.patch_count), -1, -1, patches};
  visual_tokens_ = {sum(share.visual_count), own_visual, -1, visual};
  images_ = {sum(share.image_count), -1, -1, images};
}

std::vector<int64_t> RowSizes::shape(const TensorSpec& spec) const {
  const auto of_layout = [&](const ByLayout& sizes) {
    const int64_t size = sizes[static_cast<size_t>(spec.layout)];
    if (size >= 0) return size;
    throw Error(
        Problem{Code::kR4Contract,
                {},
                fmt::format("\"{}\" has a layout that its dimensions do not have", spec.name),
                "rows of images lie by image, rows of tokens do not",
                "this is an error of the block that writes it"});
  };
  std::vector<int64_t> sizes;
  for (const Dim& dim : spec.dims) {
    switch (dim.symbol) {
      case DimSymbol::kT:
        sizes.push_back(of_layout(tokens_));
        break;
      case DimSymbol::kP:
        sizes.push_back(of_layout(patches_));
        break;
      case DimSymbol::kV:
        sizes.push_back(of_layout(visual_tokens_));
        break;
      case DimSymbol::kN:
        sizes.push_back(of_layout(images_));
        break;
      case DimSymbol::kS:
        sizes.push_back(samples_);
        break;
      case DimSymbol::kR:
        sizes.push_back(logit_rows_);
        break;
      case DimSymbol::kConstant:
        sizes.push_back(dim.size);
        break;
    }
  }
  return sizes;
}

std::vector<Crossing> crossings_of(const Chain& chain, const Stages& stages,
                                   at::ScalarType compute_dtype) {
  std::vector<Crossing> crossings(static_cast<size_t>(stages.chunks()));
  for (int cut = 1; cut < stages.chunks(); ++cut) {
    const std::vector<int> live = chain.live_at(stages.range(cut).first);
    std::vector<int> with_gradient;
    std::copy_if(live.begin(), live.end(), std::back_inserter(with_gradient),
                 [&](int version) { return chain.versions()[version].needs_grad; });
    crossings[cut].forward = parcels_of(chain, live, compute_dtype);
    crossings[cut].backward = parcels_of(chain, with_gradient, compute_dtype);
  }
  return crossings;
}

at::Tensor pack(const Parcel& parcel, const std::vector<at::Tensor>& tensors) {
  if (!parcel.packed) return tensors.front().contiguous();
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.reshape({-1}));
  return at::cat(flat);
}

at::Tensor room_for(const Parcel& parcel, const Chain& chain, const RowSizes& sizes,
                    at::Device device) {
  const auto options = at::TensorOptions().dtype(parcel.dtype).device(device);
  if (!parcel.packed)
    return at::empty(sizes.shape(chain.versions()[parcel.versions.front()].spec), options);
  int64_t sum = 0;
  for (int version : parcel.versions) sum += elements(sizes.shape(chain.versions()[version].spec));
  return at::empty({sum}, options);
}

std::vector<at::Tensor> unpack(const Parcel& parcel, const Chain& chain, const RowSizes& sizes,
                               const at::Tensor& packed) {
  if (!parcel.packed) return {packed};
  std::vector<at::Tensor> tensors;
  int64_t begin = 0;
  for (int version : parcel.versions) {
    const std::vector<int64_t> shape = sizes.shape(chain.versions()[version].spec);
    tensors.push_back(packed.narrow(0, begin, elements(shape)).view(shape));
    begin += elements(shape);
  }
  return tensors;
}

}  // namespace keyseat_strategy_three_d
