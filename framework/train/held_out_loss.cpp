#include "train/held_out_loss.h"

#include "keyseat/data/packing.h"
#include "runtime/loggers.h"
#include "train/step_counts.h"

namespace keyseat::train {

namespace {

constexpr int64_t kRowTokens = 4096;  // samples packed together, up to this many tokens

void add_row(Session& session, const std::vector<Sample>& samples, HeldOutLoss& result) {
  data::PackOptions options;
  options.input = session.chain().input();
  std::vector<const Sample*> pointers;
  for (const Sample& sample : samples) pointers.push_back(&sample);
  std::vector<Row> rows;
  rows.push_back(data::pack(pointers, options));
  const RowCounts counts = rows[0].facts.counts;
  rows[0].facts.shared_tokens = counts.tokens;
  Executor& executor = session.executor();
  executor.begin_step(0, loss_terms(session.chain(), session.config().loss, counts));
  session.strategy().schedule({0, std::move(rows), /*training=*/false, {}}, executor);
  const auto losses = executor.losses();
  const auto ce = losses.find("ce");
  if (ce != losses.end()) result.sum += ce->second;
  result.supervised += counts.supervised;
  result.samples += counts.samples;
}

}  // namespace

HeldOutLoss held_out_loss(Session& session, Data& data, int64_t limit) {
  HeldOutLoss result;
  const int64_t count = limit > 0 ? std::min(limit, data.size()) : data.size();
  std::vector<Sample> row;
  int64_t tokens = 0;
  for (int64_t id = 0; id < count; ++id) {
    Result<Sample> sample = data.sample(id);
    if (!sample) {
      ++result.failed;
      logger("train")->warn("sample {} cannot be evaluated: {}", id, sample.problem().text());
      continue;
    }
    const auto length = static_cast<int64_t>(sample.value().tokens.size());
    if (!row.empty() && tokens + length > kRowTokens) {
      add_row(session, row, result);
      row.clear();
      tokens = 0;
    }
    tokens += length;
    row.push_back(std::move(sample).value());
  }
  if (!row.empty()) add_row(session, row, result);
  return result;
}

}  // namespace keyseat::train
