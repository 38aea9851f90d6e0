#include "settings.h"

#include <fmt/format.h>

#include "keyseat/sharding/check_experts.h"

namespace keyseat_strategy_three_d {

using namespace keyseat;

Settings::Settings(const Options& options)
    : pipeline{options.get_int("pipeline"), options.get_int("virtual")},
      expert(options.get_int("expert")),
      expert_tensor(options.get_int("expert_tensor")),
      stages(options.get_string_list("stages")),
      row_tokens(options.get_int("row_tokens")),
      row_patches(options.get_int("row_patches")),
      min_bytes(options.get_int("min_bytes")) {
  if (options.has("stage_bytes")) stage_bytes = options.get_int("stage_bytes");
}

bool Settings::fits(int64_t world) const {
  return world % pipeline.stages == 0 && world / pipeline.stages % (expert * expert_tensor) == 0;
}

MeshDegrees Settings::degrees(int64_t world) const {
  MeshDegrees degrees;
  // Degrees that do not fit are reported once, by check_degrees, where they are written.
  if (!fits(world)) {
    degrees.shard = world;
    return degrees;
  }
  degrees.pipeline = pipeline.stages;
  degrees.shard = world / pipeline.stages;
  degrees.expert = expert;
  degrees.expert_tensor = expert_tensor;
  return degrees;
}

OptionSchema option_schema() {
  return {
      Option("pipeline", OptionType::kInt)
          .defaults_to(int64_t{1})
          .range(1, 1 << 20)
          .unit("stages")
          .doc("Stages into which the chain of units is cut; the ranks of a stage share the data "
               "and the experts."),
      Option("virtual", OptionType::kInt)
          .defaults_to(int64_t{1})
          .range(1, 1 << 20)
          .unit("chunks")
          .doc("Chunks of the chain per stage (interleaved 1F1B): the bubble shrinks by this "
               "factor, for as many times the messages."),
      Option("expert", OptionType::kInt)
          .defaults_to(int64_t{1})
          .range(1, 1 << 20)
          .unit("ranks")
          .doc("Ranks of a stage over which the experts are distributed; the optimizer state of "
               "each share is sharded over the others."),
      Option("expert_tensor", OptionType::kInt)
          .defaults_to(int64_t{1})
          .at_least(1)
          .unit("ranks")
          .doc("Ranks over which the width of every expert is split, next to each other; for "
               "experts "
               "that do not fit in one piece."),
      Option("stages", OptionType::kStringList)
          .defaults_to(std::vector<std::string>{})
          .doc("First unit of every chunk but the first, in chain order, as in "
               "\"decoder.layers.3\"; empty: chosen from the costs of the units."),
      Option("stage_bytes", OptionType::kSize)
          .optional()
          .range(1, 0x1p53)
          .unit("bytes")
          .level(OptionLevel::kTuning)
          .doc("What a rank may hold by the estimate (parameters, gradients, two optimizer states, "
               "open micro-batches) where stages are chosen; every chunk may take an equal part."),
      Option("row_tokens", OptionType::kInt)
          .defaults_to(int64_t{4096})
          .range(1, 1 << 24)
          .unit("tokens")
          .level(OptionLevel::kTuning)
          .doc("Tokens of a micro-batch, as one sample, for which stages are chosen."),
      Option("row_patches", OptionType::kInt)
          .defaults_to(int64_t{4096})
          .range(0, 1 << 24)
          .unit("patches")
          .level(OptionLevel::kTuning)
          .doc("Vision patches of a micro-batch, in images of up to 1,024, for which stages are "
               "chosen."),
      Option("min_bytes", OptionType::kSize)
          .defaults_to(int64_t{256} << 10)
          .range(0, 0x1p53)
          .unit("bytes")
          .level(OptionLevel::kTuning)
          .doc("Neighbouring units of a block share one gather and one reduction until they have "
               "this many bytes."),
  };
}

Problems check_degrees(const Options& options, const Settings& settings, int64_t world,
                       const Chain& chain) {
  Problems problems;
  const int64_t stages = settings.pipeline.stages;
  if (world % stages != 0) {
    problems.push_back(options.problem(
        Code::kC4Combination, "pipeline",
        fmt::format("pipeline {} does not divide the {} ranks of the run", stages, world),
        "every stage has the same number of ranks", "choose a divisor of the number of ranks"));
  } else if (!settings.fits(world)) {
    const std::string experts =
        settings.expert_tensor == 1
            ? fmt::format("expert {} does", settings.expert)
            : fmt::format("expert {} x expert_tensor {} = {} do", settings.expert,
                          settings.expert_tensor, settings.expert * settings.expert_tensor);
    problems.push_back(options.problem(
        Code::kC4Combination, "expert",
        fmt::format("{} not divide the {} ranks of a stage ({} ranks / pipeline {})", experts,
                    world / stages, world, stages),
        "the ranks of a stage share its experts",
        "choose degrees whose product divides the number of ranks"));
  }
  if (settings.pipeline.virtual_stages > 1 && stages == 1) {
    problems.push_back(options.problem(
        Code::kC4Combination, "virtual",
        fmt::format("virtual is {}, but pipeline is 1", settings.pipeline.virtual_stages),
        "there is no bubble that chunks could shrink", "leave virtual at 1"));
  }
  for (Problem& problem : sharding::check_experts(options, settings.expert, chain))
    problems.push_back(std::move(problem));
  for (Problem& problem : sharding::check_expert_tensor(options, settings.expert_tensor, chain))
    problems.push_back(std::move(problem));
  return problems;
}

}  // namespace keyseat_strategy_three_d
