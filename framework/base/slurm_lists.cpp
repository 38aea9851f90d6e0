#include "base/slurm_lists.h"

#include <charconv>

namespace keyseat {
namespace {

constexpr int64_t kMostNodes = 1 << 16;

// Reads a number at `at` and moves behind it; -1 where there is none.
int64_t take_number(const std::string& text, size_t& at) {
  int64_t value = -1;
  const char* const begin = text.data() + at;
  const auto [stop, error] = std::from_chars(begin, text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return -1;
  at += static_cast<size_t>(stop - begin);
  return value;
}

}  // namespace

std::vector<int64_t> slurm_counts(const std::string& text) {
  std::vector<int64_t> counts;
  size_t at = 0;
  while (at < text.size()) {
    const int64_t tasks = take_number(text, at);
    int64_t nodes = 1;
    if (text.compare(at, 2, "(x") == 0) {
      at += 2;
      nodes = take_number(text, at);
      if (at >= text.size() || text[at++] != ')') return {};
    }
    if (tasks < 1 || nodes < 1 || nodes > kMostNodes) return {};
    counts.insert(counts.end(), static_cast<size_t>(nodes), tasks);
    if (at < text.size() && text[at++] != ',') return {};
  }
  return counts;
}

std::string slurm_first_host(const std::string& list) {
  const size_t stop = list.find_first_of("[,");
  std::string host = list.substr(0, stop);
  if (stop != std::string::npos && list[stop] == '[') {
    host += list.substr(stop + 1, list.find_first_of("-,]", stop + 1) - stop - 1);
  }
  return host;
}

}  // namespace keyseat
