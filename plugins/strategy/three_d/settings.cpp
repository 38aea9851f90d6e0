#include "settings.h"

#include <fmt/format.h>

#include "keyseat/sharding/check_cuts.h"
#include "keyseat/sharding/check_experts.h"

namespace keyseat_strategy_three_d {

using namespace keyseat;

Settings::Settings(const Options& options)
    : pipeline{options.get_int("pipeline"), options.get_int("virtual")},
      tensor(options.get_int("tensor")),
      context(options.get_int("context")),
      expert(options.get_int("expert")),
      expert_tensor(options.get_int("expert_tensor")),
      sequence_parallel(tensor > 1),
      context_ring(options.get_string("context_method") == "ring"),
      shard_optimizer(options.get_bool("shard_optimizer")),
      overlap(options.get_bool("overlap")),
      fixed_tokens(options.get_int("fixed_tokens")),
      stages(options.get_string_list("stages")),
      row_tokens(options.get_int("row_tokens")),
      row_patches(options.get_int("row_patches")),
      min_bytes(options.get_int("min_bytes")) {
  if (options.has("sequence_parallel")) sequence_parallel = options.get_bool("sequence_parallel");
  if (options.has("stage_bytes")) stage_bytes = options.get_int("stage_bytes");
}

bool Settings::fits(int64_t world) const {
  return world % model_ranks() == 0 && world / pipeline.stages % (expert * expert_tensor) == 0;
}

MeshDegrees Settings::given_degrees() const {
  MeshDegrees degrees;
  degrees.tensor = tensor;
  degrees.context = context;
  degrees.pipeline = pipeline.stages;
  degrees.expert = expert;
  degrees.expert_tensor = expert_tensor;
  degrees.sequence_parallel = sequence_parallel;
  degrees.context_ring = context_ring;
  return degrees;
}

MeshDegrees Settings::degrees(int64_t world) const {
  if (fits(world)) {
    MeshDegrees degrees = given_degrees();
    (shard_optimizer ? degrees.shard : degrees.replicate) = world / model_ranks();
    return degrees;
  }
  // Degrees that do not fit are reported once, by check_degrees, where they are written. The
  // experts stay as they are given where they can, so that what else is wrong with them is found,
  // too.
  MeshDegrees degrees;
  degrees.shard = world;
  if (world % (expert * expert_tensor) == 0) {
    degrees.expert = expert;
    degrees.expert_tensor = expert_tensor;
  }
  return degrees;
}

OptionSchema option_schema() {
  return {
      Option("pipeline", OptionType::kInt)
          .defaults_to(int64_t{1})
          .range(1, 1 << 20)
          .unit("stages")
          .doc("Stages into which the chain of units is cut; the ranks of a stage share its rows, "
               "parameters and experts."),
      Option("virtual", OptionType::kInt)
          .defaults_to(int64_t{1})
          .range(1, 1 << 20)
          .unit("chunks")
          .doc("Chunks of the chain per stage (interleaved 1F1B): the bubble shrinks by this "
               "factor, for as many times the messages."),
      Option("tensor", OptionType::kInt)
          .defaults_to(int64_t{1})
          .range(1, 1 << 20)
          .unit("ranks")
          .doc("Ranks over which heads, widths and the vocabulary of dense parameters are cut; "
               "neighbours, best on one node."),
      Option("sequence_parallel", OptionType::kBool)
          .optional()
          .doc("Between the parts of a layer that are cut, each tensor rank has its own rows; "
               "unset: where tensor is above 1. Routed experts need it."),
      Option("context", OptionType::kInt)
          .defaults_to(int64_t{1})
          .range(1, 1 << 20)
          .unit("ranks")
          .doc("Ranks that share the tokens and the images of one row."),
      Option("context_method", OptionType::kEnum)
          .defaults_to(std::string("gather"))
          .choices({"gather", "ring"})
          .doc("How attention sees the keys and values of the other context ranks: gathered, or "
               "passed round a ring, with those of two ranks in memory at a time."),
      Option("expert", OptionType::kInt)
          .defaults_to(int64_t{1})
          .range(1, 1 << 20)
          .unit("ranks")
          .doc("Ranks of a stage over which the experts are distributed, whatever tensor and "
               "context are."),
      Option("expert_tensor", OptionType::kInt)
          .defaults_to(int64_t{1})
          .range(1, 1 << 20)
          .unit("ranks")
          .doc("Neighbouring ranks over which the width of every expert is cut; tensor has no "
               "part in it."),
      Option("shard_optimizer", OptionType::kBool)
          .defaults_to(true)
          .doc("Each rank that holds a parameter has a shard of its master, gradient and optimizer "
               "states (ZeRO-1); false: all of them."),
      Option("overlap", OptionType::kBool)
          .defaults_to(true)
          .level(OptionLevel::kTuning)
          .doc("Gradients are reduced while backward goes on, values gathered while forward does; "
               "false: one after the other."),
      Option("fixed_tokens", OptionType::kInt)
          .defaults_to(int64_t{0})
          .range(0, 1 << 24)
          .unit("tokens")
          .level(OptionLevel::kTuning)
          .doc("Pads every row that is trained on to this length, so that all steps have the same "
               "shapes; a longer row is an error. 0: only to what tensor and context need."),
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

namespace {

bool has_routed_experts(const Chain& chain) {
  return std::any_of(chain.units().begin(), chain.units().end(),
                     [](const ChainUnit& unit) { return unit.unit->spec().top_k > 0; });
}

// "pipeline 3", "tensor 2 x context 1 x pipeline 3 = 6".
std::string model_ranks_text(const Settings& settings) {
  if (settings.tensor * settings.context == 1)
    return fmt::format("pipeline {}", settings.pipeline.stages);
  return fmt::format("tensor {} x context {} x pipeline {} = {}", settings.tensor, settings.context,
                     settings.pipeline.stages, settings.model_ranks());
}

std::string expert_ranks_text(const Settings& settings) {
  if (settings.expert_tensor == 1) return fmt::format("expert {}", settings.expert);
  return fmt::format("expert {} x expert_tensor {} = {}", settings.expert, settings.expert_tensor,
                     settings.expert * settings.expert_tensor);
}

class DegreeRules {
 public:
  DegreeRules(const Options& options, const Settings& settings, Problems& problems)
      : options_(options), settings_(settings), problems_(problems) {}

  void check_world(int64_t world) {
    const int64_t stages = settings_.pipeline.stages;
    if (world % settings_.model_ranks() != 0) {
      refuse(settings_.tensor > 1    ? "tensor"
             : settings_.context > 1 ? "context"
                                     : "pipeline",
             fmt::format("{} does not divide the {} ranks of the run", model_ranks_text(settings_),
                         world),
             "every stage has the same number of ranks, and every data rank of it the same shares",
             "choose degrees whose product divides the number of ranks");
    }
    if (world % stages == 0 && world / stages % (settings_.expert * settings_.expert_tensor) != 0) {
      refuse(settings_.expert > 1 ? "expert" : "expert_tensor",
             fmt::format("{} does not divide the {} ranks of a stage ({} ranks / pipeline {})",
                         expert_ranks_text(settings_), world / stages, world, stages),
             "the ranks of a stage share its experts",
             "choose degrees whose product divides the ranks of a stage");
    }
  }

  void check_without_effect() {
    if (settings_.pipeline.virtual_stages > 1 && settings_.pipeline.stages == 1) {
      refuse("virtual",
             fmt::format("virtual is {}, but pipeline is 1", settings_.pipeline.virtual_stages),
             "there is no bubble that chunks could shrink", "leave virtual at 1");
    }
    if (settings_.sequence_parallel && settings_.tensor == 1) {
      refuse("sequence_parallel", "sequence_parallel is true, but tensor is 1",
             "there are no tensor ranks that could share rows", "leave sequence_parallel unset");
    }
    if (settings_.context_ring && settings_.context == 1) {
      refuse("context_method", "context_method is \"ring\", but context is 1",
             "no keys or values are elsewhere", "leave context_method at \"gather\"");
    }
  }

  void check_rows(const Chain& chain) {
    if (!settings_.sequence_parallel && settings_.tensor > 1 && has_routed_experts(chain)) {
      refuse("sequence_parallel",
             fmt::format("sequence_parallel is false, but the model has routed experts and tensor "
                         "is {}",
                         settings_.tensor),
             "all tensor ranks would send the same rows to the experts",
             "leave sequence_parallel unset");
    }
    const int64_t ranks = settings_.tensor * settings_.context;
    if (ranks > 1 && settings_.fixed_tokens % (2 * ranks) != 0) {
      refuse("fixed_tokens",
             fmt::format("fixed_tokens {} is no multiple of 2 x context {} x tensor {} = {}",
                         settings_.fixed_tokens, settings_.context, settings_.tensor, 2 * ranks),
             "a row is cut into as many equal parts", "round it up");
    }
  }

 private:
  void refuse(const char* option, std::string what, std::string why, std::string remedy) {
    problems_.push_back(options_.problem(Code::kC4Combination, option, std::move(what),
                                         std::move(why), std::move(remedy)));
  }
  const Options& options_;
  const Settings& settings_;
  Problems& problems_;
};

}  // namespace

Problems check_degrees(const Options& options, const Settings& settings, int64_t world,
                       const Chain& chain) {
  Problems problems;
  DegreeRules rules(options, settings, problems);
  rules.check_world(world);
  rules.check_without_effect();
  rules.check_rows(chain);
  for (Problem& problem : sharding::check_experts(options, settings.expert, chain))
    problems.push_back(std::move(problem));
  for (Problem& problem : sharding::check_cuts(options, settings.given_degrees(), chain))
    problems.push_back(std::move(problem));
  return problems;
}

}  // namespace keyseat_strategy_three_d
