#include "train/usable_samples.h"

#include "data/failures.h"

namespace keyseat::train {

namespace {

Result<Sample> supervised(Result<Sample> sample) {
  if (!sample) return sample;
  const std::vector<int64_t>& labels = sample.value().labels;
  if (std::any_of(labels.begin(), labels.end(), [](int64_t label) { return label >= 0; }))
    return sample;
  return Problem{
      Code::kR6Data, {sample.value().key, 0, 0}, "unsupervised: it has no answer", "", ""};
}

}  // namespace

void require_usable(Data& data, const EvalSettings& eval) {
  const int64_t count = eval.samples > 0 ? std::min(eval.samples, data.size()) : data.size();
  const auto require_one = [&](const auto& read) {
    data::Failures failures;
    for (int64_t id = 0; id < count; ++id) {
      const Result<Sample> sample = read(id);
      if (sample) return;
      data::add_failure(failures, sample.problem());
    }
    throw Error(data::nothing_usable(count, "evaluated", data.index(), failures));
  };
  if (eval.loss) require_one([&](int64_t id) { return supervised(data.sample(id)); });
  if (eval.accuracy) require_one([&](int64_t id) { return data.prompt(id); });
}

}  // namespace keyseat::train
