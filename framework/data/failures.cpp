#include "data/failures.h"

#include <fmt/format.h>

namespace keyseat::data {

namespace {

std::string shards_text(const std::vector<ShardIndex>& shards) {
  if (shards.empty()) return "";
  const std::string more =
      shards.size() > 1 ? fmt::format(" and {} more", shards.size() - 1) : std::string();
  return fmt::format(" of {}{}", shards[0].path, more);
}

}  // namespace

void add_failure(Failures& failures, const std::string& reason, const std::string& example) {
  auto& [count, first] = failures[reason];
  if (++count == 1) first = example;
}

void add_failure(Failures& failures, const Problem& problem) {
  const size_t colon = problem.what.find(": ");
  add_failure(failures, problem.what.substr(0, colon),
              problem.where.file + (colon == std::string::npos ? "" : problem.what.substr(colon)));
}

std::string failures_text(const Failures& failures) {
  std::string text;
  for (const auto& [reason, failure] : failures)
    text += fmt::format("\n  {} {}: {}", failure.first, reason, failure.second);
  return text;
}

Problem nothing_usable(int64_t samples, const std::string& purpose,
                       const std::vector<ShardIndex>& shards, const Failures& failures) {
  return Problem{Code::kR6Data,
                 {},
                 fmt::format("none of the {} samples{} can be {}{}", samples, shards_text(shards),
                             purpose, failures_text(failures)),
                 "",
                 "Look at the source with `keyseat data inspect`."};
}

}  // namespace keyseat::data
