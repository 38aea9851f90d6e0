// The same text from many ranks, said once with the ranks that said it. Torch-free.
//
//   merged_text({{0, "a.toml:3:1: C2 ..."}, {1, "a.toml:3:1: C2 ..."}, {2, "R2 ..."}}, 3)
//     -> "a.toml:3:1: C2 ... [ranks 0-1 of 3]\nR2 ... [rank 2 of 3]"
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "keyseat/status.h"

namespace keyseat {

struct RankText {
  int64_t rank = 0;
  std::string text;  // one message; it may have several lines
};

struct RankProblems {
  int64_t rank = 0;
  Problems problems;
};

struct MergedText {
  std::string text;
  std::vector<int64_t> ranks;  // ascending, each once
};

// Equal texts become one, in the order of their first appearance; white space at the end of a text
// does not tell two texts apart, and empty texts are left out.
std::vector<MergedText> merge_over_ranks(const std::vector<RankText>& texts);

// "rank 3 of 8", "ranks 0-2, 5 of 8", "all 8 ranks". `ranks` are ascending, each once.
std::string rank_list(const std::vector<int64_t>& ranks, int64_t world);

// One message per merged text, with its ranks in brackets behind the first line. Of a world of one
// rank the texts alone.
std::string merged_text(const std::vector<RankText>& texts, int64_t world);
// Each problem is a text of its own, so that one which all ranks share is said once, although they
// differ in others.
std::string merged_problems_text(const std::vector<RankProblems>& ranks, int64_t world);

// The status of a job whose ranks ended with these: 0 where all are 0, else that of the family that
// comes first in C (2), P (3), R (4), anything else. A rank that failed for its own reason is so
// preferred to those that only noticed that it was gone.
int merged_exit_status(const std::vector<int>& statuses);

}  // namespace keyseat
