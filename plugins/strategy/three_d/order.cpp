#include "order.h"

#include <algorithm>

namespace keyseat_strategy_three_d {

namespace {

// Groups of micro-batches pass all chunks of the stage, one chunk after the other. The last group
// is filled up, so that the order is one of whole groups; what does not exist is left out of it
// later.
std::vector<Action> one_direction(const Pipeline& pipeline, int64_t micro_batches, int64_t stage,
                                  bool backward) {
  const int64_t group = pipeline.virtual_stages > 1 ? pipeline.stages : 1;
  std::vector<Action> actions;
  for (int64_t first = 0; first < micro_batches; first += group) {
    for (int64_t i = 0; i < pipeline.virtual_stages; ++i) {
      const int64_t turn = backward ? pipeline.virtual_stages - 1 - i : i;
      for (int64_t micro_batch = first; micro_batch < first + group; ++micro_batch) {
        actions.push_back(
            {backward, micro_batch, static_cast<int>(turn * pipeline.stages + stage)});
      }
    }
  }
  return actions;
}

size_t forwards_ahead(const Pipeline& pipeline, int64_t stage) {
  const int64_t behind = pipeline.stages - 1 - stage;
  if (pipeline.virtual_stages == 1) return static_cast<size_t>(behind);
  return static_cast<size_t>(2 * behind + (pipeline.virtual_stages - 1) * pipeline.stages);
}

}  // namespace

std::vector<Action> stage_actions(const Pipeline& pipeline, int64_t micro_batches, int64_t stage,
                                  bool training) {
  const auto forwards = one_direction(pipeline, micro_batches, stage, /*backward=*/false);
  std::vector<Action> actions;
  const auto add = [&](const Action& action) {
    if (action.micro_batch < micro_batches) actions.push_back(action);
  };
  if (!training) {
    for (const Action& action : forwards) add(action);
    return actions;
  }
  const auto backwards = one_direction(pipeline, micro_batches, stage, /*backward=*/true);
  const size_t ahead = std::min(forwards.size(), forwards_ahead(pipeline, stage));
  for (size_t i = 0; i < ahead; ++i) add(forwards[i]);
  for (size_t i = 0; i < backwards.size(); ++i) {
    if (ahead + i < forwards.size()) add(forwards[ahead + i]);
    add(backwards[i]);
  }
  return actions;
}

std::vector<int64_t> most_open(const Pipeline& pipeline, const std::vector<Action>& actions) {
  std::vector<int64_t> open(static_cast<size_t>(pipeline.chunks()), 0), most = open;
  for (const Action& action : actions) {
    int64_t& now = open[static_cast<size_t>(action.chunk)];
    now += action.backward ? -1 : 1;
    most[static_cast<size_t>(action.chunk)] =
        std::max(most[static_cast<size_t>(action.chunk)], now);
  }
  return most;
}

}  // namespace keyseat_strategy_three_d
