#include "train/held_out_loss.h"

#include "comm/gather.h"
#include "keyseat/data/packing.h"
#include "runtime/loggers.h"
#include "train/step_counts.h"
#include "train/step_sums.h"

namespace keyseat::train {

namespace {

constexpr int64_t kRowTokens = 4096;  // samples packed together, up to this many tokens

// One row of every data rank, in step; false where none had a sample.
bool add_row(Session& session, const std::vector<Sample>& samples, HeldOutLoss& result) {
  data::PackOptions options;
  options.input = session.chain().input();
  std::vector<const Sample*> pointers;
  for (const Sample& sample : samples) pointers.push_back(&sample);
  std::vector<Row> rows;
  rows.push_back(data::pack(pointers, options));
  const RowCounts counts = gather_counts(rows, session.comm(), session.mesh()).total;
  if (counts.samples == 0) return false;
  Executor& executor = session.executor();
  executor.begin_step(0, loss_terms(session.chain(), session.config().loss, counts));
  session.strategy().schedule({0, std::move(rows), /*training=*/false, {}}, executor);
  const auto losses = sum_over_ranks(executor, session.comm(), session.facts().world).losses;
  const auto ce = losses.find("ce");
  if (ce != losses.end()) result.sum += ce->second;
  result.supervised += counts.supervised;
  result.samples += counts.samples;
  return true;
}

// The next samples of this data rank that fit into a row; moves `id`.
std::vector<Sample> next_samples(Data& data, int64_t& id, int64_t end, int64_t stride,
                                 int64_t& failed) {
  std::vector<Sample> row;
  int64_t tokens = 0;
  for (; id < end; id += stride) {
    Result<Sample> sample = data.sample(id);
    if (!sample) {
      ++failed;
      logger("train")->warn("sample {} cannot be evaluated: {}", id, sample.problem().text());
      continue;
    }
    tokens += static_cast<int64_t>(sample.value().tokens.size());
    if (!row.empty() && tokens > kRowTokens) break;  // it begins the next row
    row.push_back(std::move(sample).value());
  }
  return row;
}

}  // namespace

HeldOutLoss held_out_loss(Session& session, Data& data, int64_t limit) {
  HeldOutLoss result;
  const Mesh& mesh = session.mesh();
  const int64_t count = limit > 0 ? std::min(limit, data.size()) : data.size();
  int64_t id = mesh.data_rank(), own_failed = 0;
  while (add_row(session, next_samples(data, id, count, mesh.data_degree(), own_failed), result)) {
  }
  const auto failed = comm::gather_numbers({own_failed}, session.comm(), mesh.world());
  for (int64_t rank = 0; rank < mesh.world(); ++rank)
    result.failed += speaks_for_rows(mesh, rank) ? failed[static_cast<size_t>(rank)][0] : 0;
  return result;
}

}  // namespace keyseat::train
