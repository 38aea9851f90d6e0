#include "errors/merge.h"

#include <algorithm>
#include <map>

namespace keyseat {
namespace {

std::string without_trailing_space(const std::string& text) {
  const size_t last = text.find_last_not_of(" \t\r\n");
  return last == std::string::npos ? std::string() : text.substr(0, last + 1);
}

// "0-2, 5"
std::string ranges(const std::vector<int64_t>& ranks) {
  std::string text;
  for (size_t first = 0; first < ranks.size();) {
    size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += std::to_string(ranks[first]);
    if (last > first) text += '-' + std::to_string(ranks[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace

std::vector<MergedText> merge_over_ranks(const std::vector<RankText>& texts) {
  std::vector<MergedText> merged;
  std::map<std::string, size_t> index_of;
  for (const RankText& one : texts) {
    const std::string text = without_trailing_space(one.text);
    if (text.empty()) continue;
    const auto [found, is_new] = index_of.try_emplace(text, merged.size());
    if (is_new) merged.push_back({text, {}});
    std::vector<int64_t>& ranks = merged[found->second].ranks;
    const auto place = std::lower_bound(ranks.begin(), ranks.end(), one.rank);
    if (place == ranks.end() || *place != one.rank) ranks.insert(place, one.rank);
  }
  return merged;
}

std::string rank_list(const std::vector<int64_t>& ranks, int64_t world) {
  const std::string of = std::to_string(world);
  if (world > 1 && static_cast<int64_t>(ranks.size()) == world) return "all " + of + " ranks";
  return (ranks.size() == 1 ? "rank " : "ranks ") + ranges(ranks) + " of " + of;
}

std::string merged_text(const std::vector<RankText>& texts, int64_t world) {
  std::string all;
  for (const MergedText& merged : merge_over_ranks(texts)) {
    if (!all.empty()) all += '\n';
    const size_t first_line = std::min(merged.text.find('\n'), merged.text.size());
    all += merged.text.substr(0, first_line);
    if (world > 1) all += " [" + rank_list(merged.ranks, world) + ']';
    all += merged.text.substr(first_line);
  }
  return all;
}

std::string merged_problems_text(const std::vector<RankProblems>& ranks, int64_t world) {
  std::vector<RankText> texts;
  for (const RankProblems& one : ranks) {
    for (const Problem& problem : one.problems) texts.push_back({one.rank, problem.text()});
  }
  return merged_text(texts, world);
}

int merged_exit_status(const std::vector<int>& statuses) {
  constexpr int kFamilies[] = {2, 3, 4};
  int other = 0;
  for (const int status : statuses) {
    if (status != 0 && other == 0) other = status;
  }
  for (const int family : kFamilies) {
    if (std::find(statuses.begin(), statuses.end(), family) != statuses.end()) return family;
  }
  return other;
}

}  // namespace keyseat
