#include "data/step_planner.h"

namespace keyseat::data {

namespace {

// Indices of `costs` in falling order; equal costs keep their order.
std::vector<size_t> heaviest_first(const std::vector<int64_t>& costs) {
  std::vector<size_t> order(costs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return costs[a] > costs[b]; });
  return order;
}

// The chosen samples of each row, in epoch order.
std::vector<PlannedRow> collect(const PlannedRow& samples, std::vector<std::vector<size_t>> rows) {
  std::vector<PlannedRow> collected(rows.size());
  for (size_t r = 0; r < rows.size(); ++r) {
    std::sort(rows[r].begin(), rows[r].end());
    for (size_t index : rows[r]) collected[r].push_back(samples[index]);
  }
  return collected;
}

// Deals rows to ranks, the heaviest first, each to the lightest rank that has room: all ranks get
// the same number of rows, the last ones may be empty.
std::vector<std::vector<PlannedRow>> deal(std::vector<PlannedRow> rows,
                                          const std::vector<int64_t>& costs, size_t ranks) {
  const size_t most = (rows.size() + ranks - 1) / ranks;
  std::vector<std::vector<PlannedRow>> dealt(ranks);
  std::vector<int64_t> load(ranks, 0);
  for (size_t index : heaviest_first(costs)) {
    size_t best = ranks;
    for (size_t rank = 0; rank < ranks; ++rank) {
      if (dealt[rank].size() == most) continue;
      if (best == ranks || load[rank] < load[best]) best = rank;
    }
    load[best] += costs[index];
    dealt[best].push_back(std::move(rows[index]));
  }
  for (auto& rank_rows : dealt) rank_rows.resize(most);
  return dealt;
}

}  // namespace

StepPlanner::StepPlanner(PlanSettings settings, std::vector<SampleSize> sizes)
    : settings_(std::move(settings)),
      sizes_(std::move(sizes)),
      order_(settings_.sources, settings_.seed, settings_.shuffle) {}

// Attention over patches and tokens is the smaller part; linear work decides. Patches pass the
// tower, four of them make up one token of the decoder.
int64_t StepPlanner::cost(int64_t id) const {
  return sizes_.empty() ? 1 : sizes_[id].tokens + sizes_[id].patches;
}

int64_t StepPlanner::cost(const PlannedRow& row) const {
  int64_t sum = 0;
  for (const PlannedSample& sample : row) sum += cost(sample.id);
  return sum;
}

// The heaviest samples go first, each to the lightest part that has room.
std::vector<PlannedRow> StepPlanner::split(const PlannedRow& samples, size_t parts,
                                           size_t room) const {
  std::vector<std::vector<size_t>> chosen(parts);
  std::vector<int64_t> costs;
  for (const PlannedSample& sample : samples) costs.push_back(cost(sample.id));
  std::set<std::pair<int64_t, size_t>> open;  // load, part
  for (size_t part = 0; part < parts; ++part) open.insert({0, part});
  for (size_t index : heaviest_first(costs)) {
    const auto [load, part] = *open.begin();
    open.erase(open.begin());
    chosen[part].push_back(index);
    if (chosen[part].size() < room) open.insert({load + costs[index], part});
  }
  return collect(samples, std::move(chosen));
}

// Every row gets micro_batch_size samples. A micro-batch of all ranks is chosen first, then dealt
// out: its ranks are balanced, since they wait for one another in every layer, and it has the same
// samples however many ranks share it.
std::vector<std::vector<PlannedRow>> StepPlanner::deal_by_count(const PlannedRow& samples) const {
  const auto ranks = static_cast<size_t>(settings_.data_ranks);
  const auto row = static_cast<size_t>(settings_.micro_batch_size), all = row * ranks;
  std::vector<std::vector<PlannedRow>> dealt(ranks);
  for (const PlannedRow& micro_batch : split(samples, (samples.size() + all - 1) / all, all)) {
    std::vector<PlannedRow> rows = split(micro_batch, ranks, row);
    for (size_t rank = 0; rank < ranks; ++rank) dealt[rank].push_back(std::move(rows[rank]));
  }
  return dealt;
}

// Best fit, longest first: rows of at most max_tokens.
std::vector<PlannedRow> StepPlanner::rows_by_tokens(const PlannedRow& samples) const {
  std::vector<int64_t> tokens;
  for (const PlannedSample& sample : samples) tokens.push_back(sizes_[sample.id].tokens);
  std::vector<std::vector<size_t>> rows;
  std::set<std::pair<int64_t, size_t>> open;  // tokens that are free, row
  for (size_t index : heaviest_first(tokens)) {
    auto fit = open.lower_bound({tokens[index], 0});
    if (fit == open.end()) {
      rows.emplace_back();
      fit = open.insert({settings_.max_tokens, rows.size() - 1}).first;
    }
    const auto [free, row] = *fit;
    open.erase(fit);
    rows[row].push_back(index);
    open.insert({free - tokens[index], row});
  }
  return collect(samples, std::move(rows));
}

PlannedStep StepPlanner::plan(int64_t cursor) const {
  PlannedStep step;
  step.cursor = cursor;
  step.next_cursor = cursor + settings_.global_batch_size;
  PlannedRow samples;
  for (int64_t i = cursor; i < step.next_cursor; ++i) samples.push_back(order_.at(i));
  if (settings_.micro_batch_size > 0) {
    step.ranks = deal_by_count(samples);
    return step;
  }
  auto rows = rows_by_tokens(samples);
  std::vector<int64_t> costs;
  for (const PlannedRow& row : rows) costs.push_back(cost(row));
  step.ranks = deal(std::move(rows), costs, static_cast<size_t>(settings_.data_ranks));
  return step;
}

}  // namespace keyseat::data
