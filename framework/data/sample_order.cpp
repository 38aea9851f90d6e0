#include "data/sample_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "data/require.h"

namespace keyseat::data {

namespace {

// Weights are met exactly in every stretch of this many samples, to one part of it.
constexpr int64_t kPattern = 1 << 16;

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

// Slots of each source in the pattern: its share, rounded so that the sum fits (largest remainder),
// and at least one.
std::vector<int64_t> slot_counts(const std::vector<SourceShare>& sources) {
  double total = 0;
  for (const SourceShare& source : sources) total += source.weight;
  std::vector<int64_t> counts;
  std::vector<std::pair<double, size_t>> remainders;
  int64_t given = 0;
  for (size_t s = 0; s < sources.size(); ++s) {
    const double exact = sources[s].weight / total * static_cast<double>(kPattern);
    counts.push_back(std::max<int64_t>(1, static_cast<int64_t>(exact)));
    remainders.push_back({-(exact - std::floor(exact)), s});
    given += counts.back();
  }
  std::sort(remainders.begin(), remainders.end());
  for (size_t i = 0; given < kPattern; i = (i + 1) % remainders.size()) {
    ++counts[remainders[i].second];
    ++given;
  }
  return counts;
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

SampleOrder::SampleOrder(const std::vector<SourceShare>& sources, int64_t seed, bool shuffle) {
  int64_t first = 0;
  for (const SourceShare& source : sources) {
    require(source.samples > 0, fmt::format("source {} holds no samples", epochs_.size() + 1));
    require(source.weight > 0 && std::isfinite(source.weight),
            fmt::format("source {} has the weight {}", epochs_.size() + 1, source.weight));
    // Sources of one size must not run in step.
    uint64_t state = epochs_.size();
    const int64_t own_seed = epochs_.empty() ? seed : seed ^ static_cast<int64_t>(mix(state) >> 1);
    epochs_.emplace_back(source.samples, own_seed, shuffle);
    first_ids_.push_back(first);
    first += source.samples;
  }
  if (sources.size() == 1) {
    slots_of_ = {1};
    pattern_ = {Slot{}};
    return;
  }
  slots_of_ = slot_counts(sources);
  // The j-th of n slots is due at (j + 1/2) / n of the pattern.
  std::vector<std::pair<double, Slot>> due;
  for (size_t s = 0; s < sources.size(); ++s) {
    for (int64_t j = 0; j < slots_of_[s]; ++j) {
      const double place = (static_cast<double>(j) + 0.5) / static_cast<double>(slots_of_[s]);
      due.push_back({place, {static_cast<int32_t>(s), static_cast<int32_t>(j)}});
    }
  }
  std::stable_sort(due.begin(), due.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [place, slot] : due) pattern_.push_back(slot);
}

PlannedSample SampleOrder::at(int64_t position) const {
  const auto length = static_cast<int64_t>(pattern_.size());
  const Slot slot = pattern_[static_cast<size_t>(position % length)];
  const EpochOrder& epochs = epochs_[static_cast<size_t>(slot.source)];
  const int64_t place =
      position / length * slots_of_[static_cast<size_t>(slot.source)] + slot.earlier;
  return {first_ids_[static_cast<size_t>(slot.source)] + epochs.at(place),
          place / epochs.samples()};
}

}  // namespace keyseat::data
