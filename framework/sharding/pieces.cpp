#include "keyseat/sharding/pieces.h"

#include <ATen/ops/cat.h>

namespace keyseat::sharding {

namespace {

std::vector<IndexRange> ranges_at(const Pieces::Cut& cut, int64_t place) {
  const int64_t most = (cut.units + cut.degree - 1) / cut.degree;
  const int64_t first = std::min(place * most, cut.units);
  const int64_t last = std::min(first + most, cut.units);
  std::vector<IndexRange> ranges;
  int64_t begin = 0;
  for (int64_t part : cut.parts) {
    const int64_t size = part / cut.units;
    ranges.push_back({begin + first * size, begin + last * size});
    begin += part;
  }
  return ranges;
}

}  // namespace

int64_t HeldRanges::count() const {
  int64_t sum = 0;
  for (const IndexRange& range : ranges) sum += range.count();
  return sum;
}

Piece::Piece(std::vector<int64_t> whole_shape, std::vector<HeldRanges> held)
    : whole_shape_(std::move(whole_shape)), held_(std::move(held)) {
  if (whole_shape_.empty()) whole_shape_ = {1};
  shape_ = whole_shape_;
  for (const HeldRanges& one : held_) shape_[static_cast<size_t>(one.dim)] = one.count();
}

std::vector<IndexRange> Piece::ranges_of(int dim) const {
  for (const HeldRanges& one : held_) {
    if (one.dim == dim) return one.ranges;
  }
  return {{0, whole_shape_[static_cast<size_t>(dim)]}};
}

std::vector<Piece::Run> Piece::runs(int64_t begin, int64_t count) const {
  // Behind the last dimension that is cut, everything is held: a range of it is one run.
  int innermost = 0;
  for (const HeldRanges& one : held_) innermost = std::max(innermost, one.dim);
  std::vector<int64_t> strides(whole_shape_.size(), 1);  // of the whole parameter
  for (size_t dim = whole_shape_.size(); dim-- > 1;)
    strides[dim - 1] = strides[dim] * whole_shape_[dim];

  std::vector<Run> found;
  int64_t in_piece = 0;
  const std::function<void(int, int64_t)> walk = [&](int dim, int64_t in_whole) {
    const int64_t stride = strides[static_cast<size_t>(dim)];
    for (const IndexRange& range : ranges_of(dim)) {
      if (dim < innermost) {
        for (int64_t i = range.begin; i < range.end; ++i) walk(dim + 1, in_whole + i * stride);
        continue;
      }
      const int64_t size = range.count() * stride;
      const int64_t first = std::max(begin, in_piece);
      const int64_t last = std::min(begin + count, in_piece + size);
      if (first < last) {
        const int64_t start = in_whole + range.begin * stride + first - in_piece;
        const bool joins = !found.empty() && found.back().in_whole + found.back().count == start;
        if (joins) {
          found.back().count += last - first;
        } else {
          found.push_back({first, start, last - first});
        }
      }
      in_piece += size;
    }
  };
  walk(0, 0);
  return found;
}

at::Tensor Piece::take(const at::Tensor& whole) const {
  at::Tensor part = whole.reshape(whole_shape_);
  for (const HeldRanges& one : held_) {
    std::vector<at::Tensor> ranges;
    for (const IndexRange& range : one.ranges)
      ranges.push_back(part.narrow(one.dim, range.begin, range.count()));
    part = ranges.size() == 1 ? ranges.front() : at::cat(ranges, one.dim);
  }
  return part.reshape({-1});
}

void Piece::put(const at::Tensor& elements, const at::Tensor& whole) const {
  const std::function<void(size_t, const at::Tensor&, const at::Tensor&)> copy =
      [&](size_t cut, const at::Tensor& part, const at::Tensor& target) {
        if (cut == held_.size()) {
          target.copy_(part);
          return;
        }
        const HeldRanges& one = held_[cut];
        int64_t begin = 0;
        for (const IndexRange& range : one.ranges) {
          copy(cut + 1, part.narrow(one.dim, begin, range.count()),
               target.narrow(one.dim, range.begin, range.count()));
          begin += range.count();
        }
      };
  copy(0, elements.view(shape_), whole.view(whole_shape_));
}

int64_t Pieces::count() const {
  int64_t places = 1;
  for (const Cut& cut : cuts) places *= cut.degree;
  return places;
}

Piece Pieces::at(int64_t place) const {
  std::vector<HeldRanges> held;
  for (const Cut& cut : cuts) {
    held.push_back({cut.dim, ranges_at(cut, place % cut.degree)});
    place /= cut.degree;
  }
  return {shape, std::move(held)};
}

}  // namespace keyseat::sharding
