#include "stages.h"

#include <fmt/format.h>

#include <algorithm>

namespace keyseat_strategy_three_d {

using namespace keyseat;

namespace {

constexpr double kFramePatches = 1024;  // of one image of the assumed row
constexpr double kStates = 2;           // of the optimizer, as AdamW has
constexpr double kFloatBytes = 4;

WorkloadShape assumed_row(const Settings& settings, const Chain& chain, double element_bytes) {
  const auto merge = static_cast<double>(std::max<int64_t>(chain.input().merge_size, 1));
  WorkloadShape shape;
  shape.tokens = shape.supervised = static_cast<double>(settings.row_tokens);
  shape.patches = static_cast<double>(settings.row_patches);
  shape.visual_tokens = shape.patches / (merge * merge);
  shape.sequence_squares = shape.tokens * shape.tokens;
  shape.frame_squares = shape.patches * std::min(shape.patches, kFramePatches);
  shape.element_bytes = element_bytes;
  return shape;
}

// Of the parameter's elements on one rank: whole values and gradient, and the master, gradient and
// states of the shard that each of `ranks` has.
double bytes_of(const ParamSpec& spec, bool trained, double elements, double ranks,
                double compute_bytes) {
  const double element = spec.keep_fp32 ? kFloatBytes : compute_bytes;
  const double shard = elements / ranks;
  double bytes = shard * kFloatBytes;
  if (element < kFloatBytes) bytes += shard * element;
  if (ranks > 1) bytes += elements * element;
  if (!trained) return bytes;
  if (ranks > 1) bytes += elements * kFloatBytes;
  return bytes + shard * kFloatBytes * (1 + kStates);
}

// The chunks as the option names them.
std::vector<int> given_begins(const Options& options, const Settings& settings, const Chain& chain,
                              Problems& problems) {
  std::vector<int> begins{0};
  for (const std::string& name : settings.stages) {
    int unit = 0;
    while (unit < chain.size() && chain.units()[unit].name != name) ++unit;
    if (unit == chain.size()) {
      problems.push_back(options.problem(
          Code::kC4Combination, "stages", fmt::format("there is no unit \"{}\"", name),
          fmt::format("the chain has {} units, from {} to {}", chain.size(),
                      chain.units().front().name, chain.units().back().name),
          "`keyseat chain CONFIG --units` lists them"));
    } else if (unit <= begins.back()) {
      problems.push_back(options.problem(
          Code::kC4Combination, "stages",
          fmt::format("\"{}\" does not stand behind \"{}\" in the chain", name,
                      chain.units()[begins.back()].name),
          "the chunks follow one another, and none is empty", "put the units in chain order"));
    } else {
      begins.push_back(unit);
    }
  }
  const auto wanted = static_cast<size_t>(settings.pipeline.chunks()) - 1;
  if (settings.stages.size() != wanted) {
    problems.push_back(options.problem(
        Code::kC4Combination, "stages",
        fmt::format("stages names {} units, but pipeline {} x virtual {} = {} chunks need {}",
                    settings.stages.size(), settings.pipeline.stages,
                    settings.pipeline.virtual_stages, settings.pipeline.chunks(), wanted),
        "it names the first unit of every chunk but the first", ""));
  }
  begins.push_back(chain.size());
  return begins;
}

std::vector<int> balanced_begins(const Options& options, const Settings& settings,
                                 const StrategyFacts& facts, const Chain& chain,
                                 Problems& problems) {
  const Pipeline& pipeline = settings.pipeline;
  PieceLimits limits;
  limits.open.assign(static_cast<size_t>(pipeline.chunks()), 0);
  // As many micro-batches as it takes to fill the pipeline.
  const int64_t micro_batches = 2 * pipeline.chunks();
  for (int64_t stage = 0; stage < pipeline.stages; ++stage) {
    const auto open =
        most_open(pipeline, stage_actions(pipeline, micro_batches, stage, /*training=*/true));
    for (size_t chunk = 0; chunk < open.size(); ++chunk) limits.open[chunk] += open[chunk];
  }
  if (settings.stage_bytes.has_value()) {
    limits.bytes =
        static_cast<double>(*settings.stage_bytes) / static_cast<double>(pipeline.virtual_stages);
  }
  std::vector<int> begins = balance(unit_loads(settings, facts, chain), limits);
  if (begins.empty()) {
    problems.push_back(options.problem(
        Code::kC4Combination, "stage_bytes",
        fmt::format("no split of the {} units into {} chunks fits stage_bytes = {}", chain.size(),
                    pipeline.chunks(), *settings.stage_bytes),
        "a chunk has at least one unit, with its parameters, optimizer state and what open "
        "micro-batches keep",
        "raise tensor, pipeline, expert or the number of ranks, or allow more"));
  }
  return begins;
}

}  // namespace

Stages Stages::build(const Options& options, const Settings& settings, const StrategyFacts& facts,
                     const Chain& chain, Problems& problems) {
  Stages stages;
  stages.pipeline_ = settings.pipeline;
  if (chain.size() < settings.pipeline.chunks()) {
    problems.push_back(options.problem(
        Code::kC4Combination, "pipeline",
        fmt::format("pipeline {} x virtual {} = {} chunks, but the chain has {} units",
                    settings.pipeline.stages, settings.pipeline.virtual_stages,
                    settings.pipeline.chunks(), chain.size()),
        "a chunk has at least one unit", "lower a degree"));
    return stages;
  }
  stages.begins_ = settings.stages.empty()
                       ? balanced_begins(options, settings, facts, chain, problems)
                       : given_begins(options, settings, chain, problems);
  return stages;
}

Stages Stages::whole(const Chain& chain) {
  Stages stages;
  stages.begins_ = {0, chain.size()};
  return stages;
}

int64_t Stages::stage_of(int unit) const {
  const auto behind = std::upper_bound(begins_.begin(), begins_.end(), unit);
  return pipeline_.stage_of(static_cast<int>(behind - begins_.begin()) - 1);
}

std::vector<bool> Stages::units_of(int64_t stage) const {
  std::vector<bool> here(static_cast<size_t>(begins_.back()));
  for (int unit = 0; unit < begins_.back(); ++unit) here[unit] = stage_of(unit) == stage;
  return here;
}

std::vector<UnitRange> Stages::ranges_of(int64_t stage) const {
  std::vector<UnitRange> ranges;
  for (int chunk = 0; chunk < chunks(); ++chunk) {
    if (pipeline_.stage_of(chunk) == stage) ranges.push_back(range(chunk));
  }
  return ranges;
}

std::vector<Load> unit_loads(const Settings& settings, const StrategyFacts& facts,
                             const Chain& chain) {
  Problems unused;
  const Mesh mesh = Mesh::build(settings.degrees(facts.world), facts.world, 0, facts.world, unused);
  const auto compute_bytes = static_cast<double>(c10::elementSize(facts.compute_dtype));
  const WorkloadShape shape = assumed_row(settings, chain, compute_bytes);
  std::vector<Load> loads;
  for (int index = 0; index < chain.size(); ++index) {
    const ChainUnit& unit = chain.units()[index];
    const UnitSpec& spec = unit.unit->spec();
    Load load;
    for (int param = 0; param < static_cast<int>(spec.params.size()); ++param) {
      const sharding::ParamCut cut = sharding::cut_of(spec, param, mesh);
      double ranks = 1;
      for (const Axis axis : sharding::holder_axes(cut.holders, /*replicas=*/false)) {
        if (settings.shard_optimizer) ranks *= static_cast<double>(mesh.degree(axis));
      }
      load.static_bytes +=
          bytes_of(spec.params[param], unit.trainable,
                   static_cast<double>(cut.pieces.at(0).numel()), ranks, compute_bytes);
    }
    const Cost cost = unit.unit->cost(shape);
    load.time = cost.flops * chain.passes(index) * sharding::work_share(spec, mesh);
    if (unit.runs_backward)
      load.open_bytes = cost.activation_bytes * sharding::kept_share(spec, mesh);
    loads.push_back(load);
  }
  return loads;
}

}  // namespace keyseat_strategy_three_d
