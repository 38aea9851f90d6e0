#include "comm/watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace keyseat::comm {
namespace {

constexpr size_t kMostRanks = 16;  // ranks of a deadlock

}  // namespace

Watch::Watch(int64_t world, double limit_seconds)
    : limit_(limit_seconds), ranks_(static_cast<size_t>(world)) {}

void Watch::set_name(int64_t rank, std::string name) {
  ranks_[static_cast<size_t>(rank)].name = std::move(name);
}

void Watch::hear(int64_t rank, ActivityState state, double now) {
  Rank& heard = ranks_[static_cast<size_t>(rank)];
  heard.state = std::move(state);
  heard.heard = now;
}

void Watch::ended(int64_t rank) { ranks_[static_cast<size_t>(rank)].ended = true; }

void Watch::excuse(double seconds) {
  for (Rank& rank : ranks_) {
    if (rank.heard >= 0) rank.heard += seconds;
  }
}

std::string Watch::called(int64_t rank) const {
  const std::string& name = ranks_[static_cast<size_t>(rank)].name;
  return name.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} ({})", rank, name);
}

std::string Watch::last_of(int64_t rank) const {
  const ActivityState& state = ranks_[static_cast<size_t>(rank)].state;
  return fmt::format("rank {}'s last collective: {}; unit: {}", rank,
                     state.call.empty() ? "none" : state.call,
                     state.unit.empty() ? "none" : state.unit);
}

Verdict Watch::died(int64_t rank) const {
  return {rank, called(rank) + " died: its connection ended", last_of(rank)};
}

Verdict Watch::failed(int64_t rank) const {
  return {rank, called(rank) + " failed; its own message says why", last_of(rank)};
}

Verdict Watch::disagree(const CallCheck::Mismatch& mismatch) {
  return {-1,
          fmt::format("ranks {} and {} disagree in a collective ({})", mismatch.first.rank,
                      mismatch.second.rank, mismatch.what),
          mismatch.text()};
}

std::optional<Verdict> Watch::silent(double now) const {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    if (rank.ended || rank.heard < 0 || now - rank.heard < limit_) continue;
    const auto index = static_cast<int64_t>(i);
    return Verdict{
        index,
        fmt::format("{} gave no sign of life for {:.1f} s: it is stopped, or its host is gone",
                    called(index), now - rank.heard),
        last_of(index)};
  }
  return std::nullopt;
}

// Somebody has waited for too long, and a rank that does not wait stands still: that one is the
// cause. Where all wait, they wait for one another.
std::optional<Verdict> Watch::stalled(double now) const {
  bool waits = false, all_wait = true;
  std::optional<int64_t> still;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    if (rank.ended) continue;
    const bool long_since = rank.heard >= 0 && rank.idle(now) >= limit_;
    if (rank.heard >= 0 && rank.state.waiting) {
      waits |= long_since;
      all_wait &= long_since;
    } else {
      all_wait = false;
      if (long_since && !still) still = static_cast<int64_t>(i);
    }
  }
  if (!waits) return std::nullopt;
  if (still) {
    return Verdict{*still,
                   fmt::format("{} is alive but made no progress for {:.1f} s, and others wait for "
                               "it",
                               called(*still), ranks_[static_cast<size_t>(*still)].idle(now)),
                   last_of(*still)};
  }
  if (!all_wait) return std::nullopt;
  Verdict verdict{-1, fmt::format("every rank waits for another, for {:.1f} s", limit_), ""};
  for (size_t i = 0; i < std::min(ranks_.size(), kMostRanks); ++i) {
    verdict.detail += (i > 0 ? "\n  " : "") + last_of(static_cast<int64_t>(i));
  }
  return verdict;
}

std::optional<Verdict> Watch::judge(double now) const {
  auto verdict = silent(now);
  return verdict ? verdict : stalled(now);
}

bool Watch::all_ended() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.ended; });
}

}  // namespace keyseat::comm
