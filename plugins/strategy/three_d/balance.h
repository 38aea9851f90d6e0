// Cuts a list of units into neighbouring pieces of about equal time that fit the memory.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace keyseat_strategy_three_d {

// Of one unit.
struct Load {
  double time = 0;          // of a micro-batch, forward and backward, in any unit
  double static_bytes = 0;  // parameters, gradients, optimizer state on one rank
  double open_bytes = 0;    // kept for each micro-batch between forward and backward
};

// By piece: micro-batches that are open at once; bytes that a piece may take.
struct PieceLimits {
  std::vector<int64_t> open;
  double bytes = std::numeric_limits<double>::infinity();
};

// Where the pieces begin, and the end: open.size() + 1 ascending positions from 0. No split has a
// faster slowest piece; of those as fast, the times of this one differ least (sum of squares).
// Empty where no split fits.
std::vector<int> balance(const std::vector<Load>& units, const PieceLimits& limits);

}  // namespace keyseat_strategy_three_d
