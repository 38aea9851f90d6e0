// What crosses the cuts between chunks, and in which parcels.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <vector>

#include "keyseat/batch.h"
#include "keyseat/chain.h"
#include "stages.h"

namespace keyseat_strategy_three_d {

// Sizes of one row, which decide the shapes of what crosses a cut. A rank and those of its
// coordinates on the other stages have the same share of the same row, so both ends know them.
class RowSizes {
 public:
  // `row`: the rank's share.
  RowSizes(const keyseat::Row& row, const keyseat::Mesh& mesh);
  std::vector<int64_t> shape(const keyseat::TensorSpec& spec) const;

 private:
  // By layout: kWhole, kRows, kContextRows, kImages. None (-1): a layout that cannot cross.
  using ByLayout = std::array<int64_t, 4>;
  ByLayout tokens_, patches_, visual_tokens_, images_;
  int64_t samples_, logit_rows_ = 0;
};

// One tensor as it travels: of one version, or several of fixed sizes and one dtype behind one
// another.
struct Parcel {
  std::vector<int> versions;
  at::ScalarType dtype = at::kFloat;
  bool packed = false;
};

// In front of chunk `cut`: what is live there goes forward, the gradients of it come back.
struct Crossing {
  std::vector<Parcel> forward, backward;
  const std::vector<Parcel>& parcels(bool back) const { return back ? backward : forward; }
};

// By cut; nothing crosses cut 0.
std::vector<Crossing> crossings_of(const keyseat::Chain& chain, const Stages& stages,
                                   at::ScalarType compute_dtype);

at::Tensor pack(const Parcel& parcel, const std::vector<at::Tensor>& tensors);
at::Tensor room_for(const Parcel& parcel, const keyseat::Chain& chain, const RowSizes& sizes,
                    at::Device device);
std::vector<at::Tensor> unpack(const Parcel& parcel, const keyseat::Chain& chain,
                               const RowSizes& sizes, const at::Tensor& packed);

}  // namespace keyseat_strategy_three_d
