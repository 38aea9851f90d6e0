// Samples of a source that could not be used, and what a message says of them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "keyseat/interfaces/data.h"
#include "keyseat/status.h"

namespace keyseat::data {

// Reason ("truncated") -> count, the first example.
using Failures = std::map<std::string, std::pair<int64_t, std::string>>;

void add_failure(Failures& failures, const std::string& reason, const std::string& example);
// What Data::sample() or prompt() returned instead of a sample.
void add_failure(Failures& failures, const Problem& problem);

// A line for each reason, the first one begun by a line break.
std::string failures_text(const Failures& failures);

// R6: none of the samples can be used for `purpose` ("trained on"). `shards`: their files, where
// the source has any.
Problem nothing_usable(int64_t samples, const std::string& purpose,
                       const std::vector<ShardIndex>& shards, const Failures& failures);

}  // namespace keyseat::data
