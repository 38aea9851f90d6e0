// M-RoPE positions of one sample (4-models section 2).
#include <fmt/format.h>

#include "keyseat/nn/rope.h"
#include "nn/contract.h"

namespace keyseat::nn {
namespace {

constexpr int8_t kText = 0, kVideo = 2;

// One visual run: consecutive placeholder tokens on a merged grid.
struct Run {
  int64_t frames, rows, columns;
  int64_t tokens() const { return frames * rows * columns; }
};

// An image is one run; every frame group of a video is a run of its own.
std::vector<Run> runs_of(const std::vector<int64_t>& grid_thw, int64_t merge_size, size_t grid,
                         bool video) {
  const Run whole{grid_thw[3 * grid], grid_thw[3 * grid + 1] / merge_size,
                  grid_thw[3 * grid + 2] / merge_size};
  if (!video) return {whole};
  return std::vector<Run>(whole.frames, Run{1, whole.rows, whole.columns});
}

void check_run(const std::vector<int8_t>& token_type, size_t begin, const Run& run) {
  const size_t wanted = run.tokens();
  size_t found = 0;
  while (found < wanted && begin + found < token_type.size() &&
         token_type[begin + found] == token_type[begin])
    ++found;
  if (found == wanted && wanted > 0) return;
  contract_error(
      fmt::format("the visual run at token {} has {} placeholders, its grid of {} x {} x "
                  "{} merged patches needs {}",
                  begin, found, run.frames, run.rows, run.columns, wanted),
      "every merged patch takes the place of one placeholder token",
      "token types and grid_thw must come from the same sample");
}

}  // namespace

std::vector<int64_t> mrope_positions(const std::vector<int8_t>& token_type,
                                     const std::vector<int64_t>& grid_thw, int64_t merge_size) {
  const size_t tokens = token_type.size(), grids = grid_thw.size() / 3;
  std::vector<int64_t> positions(3 * tokens);
  int64_t current = 0;
  size_t grid = 0, run_index = 0;
  std::vector<Run> runs;
  for (size_t at = 0; at < tokens;) {
    if (token_type[at] == kText) {
      for (size_t axis = 0; axis < 3; ++axis) positions[axis * tokens + at] = current;
      ++current;
      ++at;
      continue;
    }
    if (run_index == runs.size()) {
      if (grid == grids) {
        contract_error(fmt::format("token {} is a visual placeholder, but all {} grids are used up",
                                   at, grids),
                       "each run of placeholders belongs to one grid",
                       "token types and grid_thw must come from the same sample");
      }
      runs = runs_of(grid_thw, merge_size, grid++, token_type[at] == kVideo);
      run_index = 0;
      if (runs.empty()) continue;
    }
    const Run run = runs[run_index++];
    check_run(token_type, at, run);
    for (int64_t t = 0; t < run.frames; ++t)
      for (int64_t y = 0; y < run.rows; ++y)
        for (int64_t x = 0; x < run.columns; ++x, ++at) {
          positions[at] = current + t;
          positions[tokens + at] = current + y;
          positions[2 * tokens + at] = current + x;
        }
    current += std::max(run.rows, run.columns);
  }
  if (grid != grids || run_index != runs.size()) {
    contract_error(fmt::format("{} grids are given, the placeholders use {} ({} of {} runs of the "
                               "last one)",
                               grids, grid, run_index, runs.size()),
                   "each grid belongs to one run of placeholders",
                   "token types and grid_thw must come from the same sample");
  }
  return positions;
}

}  // namespace keyseat::nn
