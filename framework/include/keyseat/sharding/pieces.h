// Pieces of a parameter that is cut along one or more of its dimensions. Plain arithmetic.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace keyseat::sharding {

struct IndexRange {
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
};

// The indices of one dimension that a piece has, ascending; of dimensions that are not named it has
// all.
struct HeldRanges {
  int dim = 0;
  std::vector<IndexRange> ranges;
  int64_t count() const;
};

// What one rank holds of a parameter.
class Piece {
 public:
  // `held`: every dimension at most once.
  Piece(std::vector<int64_t> whole_shape, std::vector<HeldRanges> held);

  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t numel() const { return c10::multiply_integers(shape_); }
  // Neighbours in the flattened piece that are neighbours in the flattened whole parameter, too.
  struct Run {
    int64_t in_piece = 0, in_whole = 0, count = 0;
  };
  // Those of the elements [begin, begin + count) of the piece, in order; none is empty.
  std::vector<Run> runs(int64_t begin, int64_t count) const;
  bool is_one_run() const { return runs(0, numel()).size() <= 1; }

  at::Tensor take(const at::Tensor& whole) const;  // its elements, flat
  void put(const at::Tensor& elements, const at::Tensor& whole) const;

 private:
  std::vector<IndexRange> ranges_of(int dim) const;
  std::vector<int64_t> whole_shape_, shape_;
  std::vector<HeldRanges> held_;
};

// All pieces of a parameter: one for every place in a group of ranks, together the whole of it.
struct Pieces {
  // Along one dimension, whose parts are cut alike: of each, neighbouring units go to a place.
  // Where the degree does not divide the units, the last places have fewer, or none.
  struct Cut {
    int dim = 0;
    int64_t degree = 1;
    int64_t units = 1;           // of each part
    std::vector<int64_t> parts;  // sizes, that add up to the dimension's
  };
  std::vector<int64_t> shape;  // of the whole parameter
  std::vector<Cut> cuts;       // places count them with the first one fastest

  int64_t count() const;  // of places
  Piece at(int64_t place) const;
};

}  // namespace keyseat::sharding
