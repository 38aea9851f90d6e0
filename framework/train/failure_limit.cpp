#include "train/failure_limit.h"

#include <fmt/format.h>

namespace keyseat::train {

void FailureLimit::add(const RowCounts& step, const Data& data) {
  failed_ += step.failed;
  if (step.failed == 0 || failed_ <= data.max_failed_samples()) return;
  std::string reasons;
  for (const auto& [reason, failure] : data.failures())
    reasons += fmt::format("\n  {} {}: {}", failure.first, reason, failure.second);
  throw Error(Problem{
      Code::kR6Data,
      {},
      fmt::format("{} samples failed to decode, {} are allowed{}", failed_,
                  data.max_failed_samples(), reasons.empty() ? "" : "; on this rank:" + reasons),
      "more than data.options.max_failed_samples",
      "Look at the source with `keyseat data inspect`."});
}

}  // namespace keyseat::train
