#include "data/step_planner.h"

namespace keyseat::data {

namespace {

// splitmix64: a sequence that is the same on every machine, unlike std::shuffle's distributions.
uint64_t mix(uint64_t& state) {
  state += 0x9e3779b97f4a7c15ull;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

uint64_t below(uint64_t& state, uint64_t bound) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(mix(state)) * bound) >> 64);
}

// Indices of `costs` in falling order; equal costs keep their order.
std::vector<size_t> heaviest_first(const std::vector<int64_t>& costs) {
  std::vector<size_t> order(costs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return costs[a] > costs[b]; });
  return order;
}

}  // namespace

int64_t EpochOrder::at(int64_t position) const {
  const int64_t epoch = position / samples_, place = position % samples_;
  if (!shuffle_) return place;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (epoch != cached_epoch_) {
    cached_.resize(samples_);
    std::iota(cached_.begin(), cached_.end(), 0);
    uint64_t state =
        static_cast<uint64_t>(seed_) * 0xd1342543de82ef95ull + static_cast<uint64_t>(epoch);
    for (int64_t i = samples_ - 1; i > 0; --i) {
      std::swap(cached_[i], cached_[below(state, static_cast<uint64_t>(i) + 1)]);
    }
    cached_epoch_ = epoch;
  }
  return cached_[place];
}

StepPlanner::StepPlanner(PlanSettings settings, std::vector<SampleSize> sizes)
    : settings_(settings),
      sizes_(std::move(sizes)),
      order_(settings.samples, settings.seed, settings.shuffle) {}

// Attention over patches and tokens is the smaller part; linear work decides. Patches pass the
// tower, four of them make up one token of the decoder.
int64_t StepPlanner::cost(int64_t id) const {
  return sizes_.empty() ? 1 : sizes_[id].tokens + sizes_[id].patches;
}

// Every row gets micro_batch_size samples; the heaviest go first, each to the lightest row that has
// room.
std::vector<std::vector<int64_t>> StepPlanner::rows_by_count(
    const std::vector<int64_t>& ids) const {
  const size_t rows = ids.size() / static_cast<size_t>(settings_.micro_batch_size);
  std::vector<std::vector<size_t>> members(rows);
  std::vector<int64_t> load(rows, 0), costs;
  for (int64_t id : ids) costs.push_back(cost(id));
  for (size_t index : heaviest_first(costs)) {
    size_t best = rows;
    for (size_t r = 0; r < rows; ++r) {
      const bool room = members[r].size() < static_cast<size_t>(settings_.micro_batch_size);
      if (room && (best == rows || load[r] < load[best])) best = r;
    }
    members[best].push_back(index);
    load[best] += costs[index];
  }
  std::vector<std::vector<int64_t>> out(rows);
  for (size_t r = 0; r < rows; ++r) {
    std::sort(members[r].begin(), members[r].end());  // epoch order inside a row
    for (size_t index : members[r]) out[r].push_back(ids[index]);
  }
  return out;
}

// First fit, longest first: rows of at most max_tokens. A sample that is longer than that gets a
// row of its own, where the loader names it as a failure.
std::vector<std::vector<int64_t>> StepPlanner::rows_by_tokens(
    const std::vector<int64_t>& ids) const {
  std::vector<int64_t> tokens;
  for (int64_t id : ids) tokens.push_back(sizes_[id].tokens);
  std::vector<std::vector<size_t>> members;
  std::vector<int64_t> filled;
  for (size_t index : heaviest_first(tokens)) {
    size_t row = 0;
    while (row < members.size() && filled[row] + tokens[index] > settings_.max_tokens) ++row;
    if (row == members.size()) {
      members.emplace_back();
      filled.push_back(0);
    }
    members[row].push_back(index);
    filled[row] += tokens[index];
  }
  std::vector<std::vector<int64_t>> out(members.size());
  for (size_t r = 0; r < members.size(); ++r) {
    std::sort(members[r].begin(), members[r].end());
    for (size_t index : members[r]) out[r].push_back(ids[index]);
  }
  return out;
}

StepAssignment StepPlanner::plan(int64_t cursor) const {
  StepAssignment step;
  step.cursor = cursor;
  step.next_cursor = cursor + settings_.global_batch_size;
  std::vector<int64_t> ids;
  for (int64_t i = cursor; i < step.next_cursor; ++i) ids.push_back(order_.at(i));
  const auto rows = settings_.micro_batch_size > 0 ? rows_by_count(ids) : rows_by_tokens(ids);

  // Rows are dealt heaviest first, to and fro, so that data ranks carry alike; all get the same
  // number, the last may be empty.
  std::vector<int64_t> costs;
  for (const auto& row : rows) {
    int64_t sum = 0;
    for (int64_t id : row) sum += cost(id);
    costs.push_back(sum);
  }
  const int64_t ranks = settings_.data_ranks;
  step.rows.resize(ranks);
  int64_t dealt = 0;
  for (size_t index : heaviest_first(costs)) {
    const int64_t lap = dealt / ranks, place = dealt % ranks;
    step.rows[lap % 2 == 0 ? place : ranks - 1 - place].push_back(rows[index]);
    ++dealt;
  }
  const size_t most = (rows.size() + static_cast<size_t>(ranks) - 1) / static_cast<size_t>(ranks);
  for (auto& rank_rows : step.rows) rank_rows.resize(most);
  return step;
}

}  // namespace keyseat::data
