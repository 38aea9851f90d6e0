#include "plugins/strategy/three_d/order.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <map>

#include "plugins/strategy/three_d/balance.h"
#include "plugins/strategy/three_d/order.cpp"
#include "train/model_fixture.h"

using namespace keyseat_strategy_three_d;
using keyseat::UnitSeconds;
using keyseat::testing::Values;

namespace {

// "F0.2": forward of micro-batch 0 through chunk 2.
std::string text(const std::vector<Action>& actions) {
  std::vector<std::string> words;
  for (const Action& action : actions) {
    words.push_back(
        fmt::format("{}{}.{}", action.backward ? 'B' : 'F', action.micro_batch, action.chunk));
  }
  return fmt::format("{}", fmt::join(words, " "));
}

std::string order(const Pipeline& pipeline, int64_t micro_batches, int64_t stage) {
  return text(stage_actions(pipeline, micro_batches, stage, /*training=*/true));
}

// Seconds of a micro-batch.
struct ChunkSeconds {
  double forward = 0, backward = 0;
};

// When every action of every stage ends. Fails where the stages wait for one another for ever.
struct Simulation {
  Simulation(const Pipeline& pipeline, int64_t micro_batches, double forward, double backward)
      : Simulation(pipeline, micro_batches,
                   std::vector<ChunkSeconds>(static_cast<size_t>(pipeline.chunks()),
                                             {forward, backward})) {}
  Simulation(const Pipeline& pipeline, int64_t micro_batches,
             const std::vector<ChunkSeconds>& chunks) {
    std::vector<std::vector<Action>> actions;
    std::vector<size_t> next(static_cast<size_t>(pipeline.stages), 0);
    std::vector<double> free(next.size(), 0);
    size_t left = 0;
    for (int64_t stage = 0; stage < pipeline.stages; ++stage) {
      actions.push_back(stage_actions(pipeline, micro_batches, stage, /*training=*/true));
      left += actions.back().size();
    }
    std::map<std::array<int64_t, 3>, double> end;  // by direction, micro-batch, chunk
    const int64_t last = pipeline.chunks() - 1;
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t stage = 0; stage < next.size(); ++stage) {
        if (next[stage] == actions[stage].size()) continue;
        const Action& action = actions[stage][next[stage]];
        std::array<int64_t, 3> before{action.backward ? 1 : 0, action.micro_batch,
                                      action.chunk + (action.backward ? 1 : -1)};
        if (action.backward && action.chunk == last) before = {0, action.micro_batch, last};
        const bool starts = !action.backward && action.chunk == 0;
        if (!starts && !end.contains(before)) continue;
        const double begin = std::max(free[stage], starts ? 0.0 : end.at(before));
        const ChunkSeconds& took = chunks[static_cast<size_t>(action.chunk)];
        free[stage] = begin + (action.backward ? took.backward : took.forward);
        end[{action.backward ? 1 : 0, action.micro_batch, action.chunk}] = free[stage];
        ++next[stage];
        --left;
        moved = true;
      }
    }
    runs_to_the_end = left == 0;
    seconds = *std::max_element(free.begin(), free.end());
    ran = end.size();
  }
  bool runs_to_the_end = false;
  double seconds = 0;
  size_t ran = 0;  // different actions
};

}  // namespace

TEST_CASE("three_d: the order of a stage is 1F1B") {
  const Pipeline pipeline{4, 1};
  CHECK(order(pipeline, 5, 0) == "F0.0 F1.0 F2.0 F3.0 B0.0 F4.0 B1.0 B2.0 B3.0 B4.0");
  CHECK(order(pipeline, 5, 2) == "F0.2 F1.2 B0.2 F2.2 B1.2 F3.2 B2.2 F4.2 B3.2 B4.2");
  CHECK(order(pipeline, 5, 3) == "F0.3 B0.3 F1.3 B1.3 F2.3 B2.3 F3.3 B3.3 F4.3 B4.3");
  // Fewer micro-batches than stages.
  CHECK(order(pipeline, 2, 0) == "F0.0 F1.0 B0.0 B1.0");
  CHECK(order(pipeline, 2, 2) == "F0.2 F1.2 B0.2 B1.2");
  CHECK(order({1, 1}, 2, 0) == "F0.0 B0.0 F1.0 B1.0");
  CHECK(text(stage_actions(pipeline, 2, 1, /*training=*/false)) == "F0.1 F1.1");
}

TEST_CASE("three_d: the order of a stage with several chunks is interleaved 1F1B") {
  const Pipeline pipeline{2, 2};
  CHECK(order(pipeline, 4, 0) ==
        "F0.0 F1.0 F0.2 F1.2 F2.0 B0.2 F3.0 B1.2 F2.2 B0.0 F3.2 B1.0 B2.2 B3.2 B2.0 B3.0");
  CHECK(order(pipeline, 4, 1) ==
        "F0.1 F1.1 F0.3 B0.3 F1.3 B1.3 F2.1 B0.1 F3.1 B1.1 F2.3 B2.3 F3.3 B3.3 B2.1 B3.1");
  // The group of micro-batches 2 and 3 lacks the second one.
  CHECK(order(pipeline, 3, 0) == "F0.0 F1.0 F0.2 F1.2 F2.0 B0.2 B1.2 F2.2 B0.0 B1.0 B2.2 B2.0");
  CHECK(text(stage_actions(pipeline, 3, 0, /*training=*/false)) == "F0.0 F1.0 F0.2 F1.2 F2.0 F2.2");
}

TEST_CASE("three_d: every order runs to its end, for any number of micro-batches") {
  for (int64_t stages = 1; stages <= 5; ++stages) {
    for (int64_t chunks = 1; chunks <= 4; ++chunks) {
      for (int64_t micro_batches = 0; micro_batches <= 11; ++micro_batches) {
        CAPTURE(stages);
        CAPTURE(chunks);
        CAPTURE(micro_batches);
        const Simulation simulation({stages, chunks}, micro_batches, 1, 2);
        CHECK(simulation.runs_to_the_end);
        CHECK(simulation.ran == static_cast<size_t>(2 * micro_batches * stages * chunks));
      }
    }
  }
}

TEST_CASE("three_d: a stage holds no more open micro-batches than it is away from the end") {
  for (int64_t stages : {2, 3, 4}) {
    for (int64_t micro_batches : {1, 2, 3, 8}) {
      for (int64_t stage = 0; stage < stages; ++stage) {
        const Pipeline pipeline{stages, 1};
        const auto open =
            most_open(pipeline, stage_actions(pipeline, micro_batches, stage, /*training=*/true));
        for (int64_t chunk = 0; chunk < stages; ++chunk) {
          CHECK(open[static_cast<size_t>(chunk)] ==
                (chunk == stage ? std::min(micro_batches, stages - stage) : 0));
        }
      }
    }
  }
  // Interleaved: the forwards ahead, and the one that is under way.
  const Pipeline pipeline{4, 2};
  for (int64_t stage = 0; stage < 4; ++stage) {
    int64_t open = 0, most = 0;
    for (const Action& action : stage_actions(pipeline, 16, stage, /*training=*/true)) {
      open += action.backward ? -1 : 1;
      most = std::max(most, open);
    }
    CHECK(most == 2 * (3 - stage) + 4 + 1);
  }
}

TEST_CASE("three_d: the bubble is (p - 1) / (v m)") {
  for (int64_t stages : {2, 4}) {
    for (int64_t chunks : {1, 2, 4}) {
      for (int64_t groups : {1, 2, 5}) {
        const int64_t micro_batches = stages * groups;
        constexpr double kForward = 1, kBackward = 2;
        const Simulation simulation({stages, chunks}, micro_batches, kForward, kBackward);
        const auto m = static_cast<double>(micro_batches), v = static_cast<double>(chunks);
        const double work = m * v * (kForward + kBackward);
        CAPTURE(stages);
        CAPTURE(chunks);
        CAPTURE(micro_batches);
        CHECK(simulation.seconds / work - 1 ==
              doctest::Approx(static_cast<double>(stages - 1) / (v * m)));
      }
    }
  }
}

namespace {

// Seconds of the units of a small decoder for a micro-batch, measured in one process: of some runs
// the least, which other work of the machine disturbs least.
std::vector<UnitSeconds> measured_units() {
  const Values decoder = keyseat::testing::with(
      keyseat::testing::small_decoder(), {{"vision", false},
                                          {"num_hidden_layers", int64_t{24}},
                                          {"num_experts", int64_t{0}},
                                          {"mlp_only_layers", std::vector<int64_t>{}},
                                          {"deepstack_visual_indexes", std::vector<int64_t>{}},
                                          {"mrope_section", std::vector<int64_t>{}}});
  keyseat::testing::SmallModel model({keyseat::testing::block_of("decoder", "qwen3_moe", decoder)});
  constexpr int kRuns = 5;
  std::vector<UnitSeconds> least;
  for (int i = 0; i < kRuns; ++i) {
    model.run({model.pack({keyseat::testing::small_sample(1, 200, /*image=*/false,
                                                          model.chain().input())})},
              /*training=*/true);
    const std::vector<UnitSeconds>& seconds = model.executor().seconds();
    if (i == 0) least = seconds;
    for (size_t unit = 0; unit < least.size(); ++unit) {
      least[unit].forward = std::min(least[unit].forward, seconds[unit].forward);
      least[unit].backward = std::min(least[unit].backward, seconds[unit].backward);
    }
  }
  return least;
}

// By chunk, for the split that `stages = []` would choose by these times.
std::vector<ChunkSeconds> chunks_of(const std::vector<UnitSeconds>& units,
                                    const Pipeline& pipeline) {
  std::vector<Load> loads;
  for (const UnitSeconds& unit : units) loads.push_back({unit.forward + unit.backward, 0, 0});
  const std::vector<int> begins =
      balance(loads, {std::vector<int64_t>(static_cast<size_t>(pipeline.chunks()), 1)});
  std::vector<ChunkSeconds> chunks;
  for (size_t chunk = 0; chunk + 1 < begins.size(); ++chunk) {
    chunks.emplace_back();
    for (int unit = begins[chunk]; unit < begins[chunk + 1]; ++unit) {
      chunks.back().forward += units[static_cast<size_t>(unit)].forward;
      chunks.back().backward += units[static_cast<size_t>(unit)].backward;
    }
  }
  return chunks;
}

}  // namespace

TEST_CASE("three_d: with measured times the bubble is (p - 1) / (v m) but for uneven chunks") {
  const std::vector<UnitSeconds> units = measured_units();
  for (const UnitSeconds& unit : units) REQUIRE(unit.forward > 0);
  for (const int64_t stages : {2, 3, 4}) {
    for (const int64_t chunks : {1, 2}) {
      for (const int64_t micro_batches : {stages, 4 * stages}) {
        const Pipeline pipeline{stages, chunks};
        const std::vector<ChunkSeconds> seconds = chunks_of(units, pipeline);
        REQUIRE(seconds.size() == static_cast<size_t>(pipeline.chunks()));
        double work = 0;  // of a micro-batch
        ChunkSeconds least = seconds.front(), most = seconds.front();
        for (const ChunkSeconds& chunk : seconds) {
          work += chunk.forward + chunk.backward;
          least = {std::min(least.forward, chunk.forward),
                   std::min(least.backward, chunk.backward)};
          most = {std::max(most.forward, chunk.forward), std::max(most.backward, chunk.backward)};
        }
        const auto m = static_cast<double>(micro_batches);
        const double of_stage = work * m / static_cast<double>(stages);
        const double bubble = Simulation(pipeline, micro_batches, seconds).seconds / of_stage - 1;
        const double ideal = static_cast<double>(stages - 1) / (static_cast<double>(chunks) * m);
        // Were all chunks as the fastest one, or as the slowest, in both directions: what the
        // bubble of such a pipeline comes to in terms of this one's work.
        const auto with_all_as = [&](const ChunkSeconds& chunk) {
          const double unevenness =
              static_cast<double>(pipeline.chunks()) * (chunk.forward + chunk.backward) / work;
          return (1 + ideal) * unevenness - 1;
        };
        MESSAGE(stages, " stages, ", chunks, " chunks each, ", micro_batches,
                " micro-batches: bubble ", bubble, ", (p - 1) / (v m) = ", ideal);
        constexpr double kRounding = 1e-9;
        CHECK(bubble >= with_all_as(least) - kRounding);
        CHECK(bubble <= with_all_as(most) + kRounding);
      }
    }
  }
}
