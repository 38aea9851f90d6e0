// In which order a stage of the pipeline runs its chunks of the chain.
#pragma once

#include <cstdint>
#include <vector>

namespace keyseat_strategy_three_d {

// The chain is cut into stages * virtual_stages chunks; chunk c runs on stage c mod stages.
struct Pipeline {
  int64_t stages = 1, virtual_stages = 1;
  int64_t chunks() const { return stages * virtual_stages; }
  int64_t stage_of(int chunk) const { return chunk % stages; }
};

struct Action {
  bool backward = false;
  int64_t micro_batch = 0;
  int chunk = 0;
  bool operator==(const Action&) const = default;
};

// 1F1B: a stage that is k stages away from the last one runs k forwards ahead, then one forward and
// one backward in turn. With several chunks per stage (interleaved 1F1B) the micro-batches pass in
// groups of as many as there are stages. Without training: the forwards alone. No order of one
// stage waits for a later action of another, for any number of micro-batches.
std::vector<Action> stage_actions(const Pipeline& pipeline, int64_t micro_batches, int64_t stage,
                                  bool training);

// By chunk of the chain: most micro-batches whose forward has run and whose backward has not.
std::vector<int64_t> most_open(const Pipeline& pipeline, const std::vector<Action>& actions);

}  // namespace keyseat_strategy_three_d
