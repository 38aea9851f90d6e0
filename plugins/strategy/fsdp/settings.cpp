#include "settings.h"

#include <fmt/format.h>

#include "keyseat/sharding/check_experts.h"

namespace keyseat_strategy_fsdp {

using namespace keyseat;

namespace {

at::ScalarType dtype_named(const std::string& name) {
  return name == "bf16" ? at::kBFloat16 : at::kFloat;
}

Problem degree_problem(const Options& options, const Settings& settings, int64_t world) {
  if (settings.shard.has_value()) {
    return options.problem(
        Code::kC4Combination, "shard",
        fmt::format("shard {} x replicate {} = {}, but the run has {} ranks", *settings.shard,
                    settings.replicate, *settings.shard * settings.replicate, world),
        "every rank holds one shard of one replica",
        "launch as many ranks as the degrees make, or leave shard unset");
  }
  return options.problem(Code::kC4Combination, "replicate",
                         fmt::format("replicate {} does not divide the {} ranks of the run",
                                     settings.replicate, world),
                         "every replica of the model is spread over the same number of ranks",
                         "choose a divisor of the number of ranks");
}

}  // namespace

Settings::Settings(const Options& options)
    : replicate(options.get_int("replicate")),
      expert(options.get_int("expert")),
      prefetch(options.get_int("prefetch")),
      min_bytes(options.get_int("min_bytes")),
      reduce_dtype(dtype_named(options.get_string("reduce_dtype"))),
      accumulate_sharded(options.get_string("accumulate") == "sharded"),
      offload_optimizer(options.get_bool("offload_optimizer")),
      poison(options.get_bool("poison")) {
  if (options.has("shard")) shard = options.get_int("shard");
  if (options.has("trace")) trace = options.get_string("trace");
  const std::string& when = options.get_string("reshard_after_forward");
  reshard = when == "always"  ? Reshard::kAlways
            : when == "never" ? Reshard::kNever
                              : Reshard::kAuto;
  const std::string& parameter = options.get_string("parameter_dtype");
  if (parameter != "auto") parameter_dtype = dtype_named(parameter);
}

int64_t Settings::shard_degree(int64_t world) const { return shard.value_or(world / replicate); }

bool Settings::fits(int64_t world) const {
  return shard_degree(world) * replicate == world && world % expert == 0;
}

MeshDegrees Settings::degrees(int64_t world) const {
  MeshDegrees degrees;
  // Degrees that do not fit are reported once, by check_layout, where they are written.
  if (!fits(world)) {
    degrees.shard = world;
    return degrees;
  }
  degrees.shard = shard_degree(world);
  degrees.replicate = replicate;
  degrees.expert = expert;
  return degrees;
}

OptionSchema option_schema() {
  return {
      Option("shard", OptionType::kInt)
          .optional()
          .range(1, 1 << 20)
          .unit("ranks")
          .doc("Ranks over which one replica of the model is sharded; unset: all that replicate "
               "leaves."),
      Option("replicate", OptionType::kInt)
          .defaults_to(int64_t{1})
          .range(1, 1 << 20)
          .doc("Replicas of the dense parameters (HSDP); experts are sharded across replicas."),
      Option("expert", OptionType::kInt)
          .defaults_to(int64_t{1})
          .range(1, 1 << 20)
          .unit("ranks")
          .doc("Ranks over which the experts are distributed; each share is sharded over the "
               "world / expert ranks that hold it."),
      Option("reshard_after_forward", OptionType::kEnum)
          .defaults_to(std::string("auto"))
          .choices({"auto", "always", "never"})
          .level(OptionLevel::kTuning)
          .doc("Whether a unit's parameters are let go behind its forward and gathered again for "
               "its backward; auto: except where its backward comes next."),
      Option("prefetch", OptionType::kInt)
          .defaults_to(int64_t{1})
          .range(0, 64)
          .level(OptionLevel::kTuning)
          .unit("units")
          .doc("Units whose gather is begun before the current unit runs; prefetch + 1 units are "
               "in memory."),
      Option("min_bytes", OptionType::kSize)
          .defaults_to(int64_t{256} << 10)
          .range(0, 0x1p53)
          .unit("bytes")
          .level(OptionLevel::kTuning)
          .doc("Neighbouring units of a block are gathered together until they have this many "
               "bytes."),
      Option("parameter_dtype", OptionType::kEnum)
          .defaults_to(std::string("auto"))
          .choices({"auto", "fp32", "bf16"})
          .level(OptionLevel::kTuning)
          .doc("Type in which parameters are gathered; units compute in the run's precision "
               "(auto: that one). Parameters that ask for fp32 stay fp32."),
      Option("reduce_dtype", OptionType::kEnum)
          .defaults_to(std::string("fp32"))
          .choices({"fp32", "bf16"})
          .level(OptionLevel::kTuning)
          .doc("Type in which gradients are reduced; shards are accumulated in fp32."),
      Option("accumulate", OptionType::kEnum)
          .defaults_to(std::string("sharded"))
          .choices({"sharded", "full"})
          .level(OptionLevel::kTuning)
          .doc("Over the micro-batches of a step: sharded reduces after each one, full keeps whole "
               "gradients and reduces after the last."),
      Option("offload_optimizer", OptionType::kBool)
          .defaults_to(false)
          .level(OptionLevel::kTuning)
          .doc("Keeps masters and optimizer state in host memory and updates them there; for "
               "run.device = \"cuda\"."),
      Option("poison", OptionType::kBool)
          .defaults_to(false)
          .level(OptionLevel::kDeveloper)
          .doc("Parameters read NaN while they are not gathered."),
      Option("trace", OptionType::kPath)
          .optional()
          .level(OptionLevel::kDeveloper)
          .doc("Writes what was gathered, computed and reduced when, as a Chrome trace per rank: "
               "FILE.RANK.json."),
  };
}

Problems check_layout(const Options& options, const Settings& settings, const StrategyFacts& facts,
                      const Chain& chain) {
  Problems problems;
  if (settings.shard_degree(facts.world) * settings.replicate != facts.world)
    problems.push_back(degree_problem(options, settings, facts.world));
  if (facts.world % settings.expert != 0) {
    problems.push_back(
        options.problem(Code::kC4Combination, "expert",
                        fmt::format("expert {} does not divide the {} ranks of the run",
                                    settings.expert, facts.world),
                        "each share of the experts is held by world / expert ranks",
                        "choose a divisor of the number of ranks"));
  }
  for (Problem& problem : check_experts(options, settings.expert, chain))
    problems.push_back(std::move(problem));
  if (settings.offload_optimizer && facts.device.is_cpu()) {
    problems.push_back(options.problem(Code::kC4Combination, "offload_optimizer",
                                       "offload_optimizer is true, but the device is the CPU",
                                       "the state lies in host memory already",
                                       "leave it out, or choose run.device = \"cuda\""));
  }
  return problems;
}

}  // namespace keyseat_strategy_fsdp
