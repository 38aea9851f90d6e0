#include "train/failure_limit.h"

#include <fmt/format.h>

#include "data/failures.h"

namespace keyseat::train {

void FailureLimit::add(const RowCounts& step, const Data& data) {
  failed_ += step.failed;
  seen_ += step.failed + step.samples;
  supervised_ = supervised_ || step.supervised > 0;
  if (seen_ >= data.size()) finish(data);
  if (step.failed == 0 || failed_ <= data.max_failed_samples()) return;
  const std::string reasons = data::failures_text(data.failures());
  throw Error(Problem{
      Code::kR6Data,
      {},
      fmt::format("{} samples failed to decode, {} are allowed{}", failed_,
                  data.max_failed_samples(), reasons.empty() ? "" : "; on this rank:" + reasons),
      "more than data.options.max_failed_samples",
      "Look at the source with `keyseat data inspect`."});
}

void FailureLimit::finish(const Data& data) const {
  if (supervised_ || seen_ == 0) return;
  data::Failures failures = data.failures();  // of this rank
  if (seen_ > failed_) {
    failures["unsupervised"] = {seen_ - failed_, "no token of an answer to train on"};
  }
  throw Error(data::nothing_usable(seen_, "trained on", data.index(), failures));
}

void FailureLimit::restore(int64_t samples, int64_t failed) {
  seen_ = samples;
  failed_ = failed;
  supervised_ = samples > failed;  // else the earlier part would not have gone on
}

}  // namespace keyseat::train
