#include "balance.h"

#include <algorithm>
#include <functional>

namespace keyseat_strategy_three_d {

namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1e-9;  // of sums of times, relative

// Sums over [first, last) from running sums.
class Pieces {
 public:
  Pieces(const std::vector<Load>& units, const PieceLimits& limits)
      : limits_(limits), sums_(units.size() + 1) {
    for (size_t i = 0; i < units.size(); ++i) {
      sums_[i + 1] = {sums_[i].time + units[i].time, sums_[i].static_bytes + units[i].static_bytes,
                      sums_[i].open_bytes + units[i].open_bytes};
    }
  }
  int count() const { return static_cast<int>(limits_.open.size()); }
  int units() const { return static_cast<int>(sums_.size()) - 1; }
  double time(int first, int last) const { return sums_[last].time - sums_[first].time; }
  bool fits(int piece, int first, int last) const {
    const double kept = sums_[last].open_bytes - sums_[first].open_bytes;
    return sums_[last].static_bytes - sums_[first].static_bytes +
               static_cast<double>(limits_.open[piece]) * kept <=
           limits_.bytes;
  }

 private:
  const PieceLimits& limits_;
  std::vector<Load> sums_;
};

struct Best {
  double cost = kInfinite;
  std::vector<int> begins;
};

// Dynamic programming over (pieces, units): `cost` of a piece may be infinite, `join` adds it to
// that of the pieces before.
Best best_split(const Pieces& pieces, const std::function<double(int, int, int)>& cost,
                const std::function<double(double, double)>& join) {
  const int units = pieces.units(), count = pieces.count();
  std::vector<std::vector<double>> best(count + 1, std::vector<double>(units + 1, kInfinite));
  std::vector<std::vector<int>> from(count + 1, std::vector<int>(units + 1, -1));
  best[0][0] = 0;
  for (int piece = 0; piece < count; ++piece) {
    for (int last = piece + 1; last <= units; ++last) {
      for (int first = piece; first < last; ++first) {
        const double total = join(best[piece][first], cost(piece, first, last));
        if (total < best[piece + 1][last]) {
          best[piece + 1][last] = total;
          from[piece + 1][last] = first;
        }
      }
    }
  }
  Best found{best[count][units], {units}};
  if (found.cost == kInfinite) return found;
  for (int piece = count, last = units; piece > 0; --piece) {
    last = from[piece][last];
    found.begins.insert(found.begins.begin(), last);
  }
  return found;
}

}  // namespace

std::vector<int> balance(const std::vector<Load>& units, const PieceLimits& limits) {
  const Pieces pieces(units, limits);
  const auto time = [&](int piece, int first, int last) {
    return pieces.fits(piece, first, last) ? pieces.time(first, last) : kInfinite;
  };
  const Best fastest =
      best_split(pieces, time, [](double before, double own) { return std::max(before, own); });
  if (fastest.cost == kInfinite) return {};
  const double allowed = fastest.cost * (1 + kRounding);
  const auto square = [&](int piece, int first, int last) {
    const double own = time(piece, first, last);
    return own <= allowed ? own * own : kInfinite;
  };
  return best_split(pieces, square, [](double before, double own) { return before + own; }).begins;
}

}  // namespace keyseat_strategy_three_d
