#include "tools/keyseat/layout/layout_facts.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/keyseat/chain/numbers_text.h"

namespace keyseat::tool::layout {

namespace {

using chain::bytes_text;
using chain::count_text;
using chain::flops_text;

constexpr Axis kAxes[] = {Axis::kPipeline, Axis::kReplicate,  Axis::kShard,  Axis::kContext,
                          Axis::kTensor,   Axis::kExpertData, Axis::kExpert, Axis::kExpertTensor};

std::string mesh_text(const Mesh& mesh) {
  std::string text = fmt::format("{} ranks, {} per node:", mesh.world(), mesh.ranks_per_node());
  for (const Axis axis : kAxes) {
    if (mesh.degree(axis) > 1) text += fmt::format(" {} {}", axis_name(axis), mesh.degree(axis));
  }
  return text;
}

}  // namespace

std::string layout_text(const LayoutFacts& facts) {
  std::string text = fmt::format(
      "{}\nstrategy {}, dispatcher {}, optimizer {}, {}; a row of {} tokens, {} of them visual\n\n",
      mesh_text(facts.mesh), facts.strategy, facts.dispatcher, facts.optimizer, facts.precision,
      facts.row.tokens, facts.row.visual_tokens);
  text += fmt::format("{:<6} {:>5}  {:<52} {:>11} {:>11} {:>11} {:>13}\n", "stage", "units",
                      "from .. to", "parameters", "static", "activations", "work per row");
  for (size_t stage = 0; stage < facts.stages.size(); ++stage) {
    const StageFacts& own = facts.stages[stage];
    text += fmt::format(
        "{:<6} {:>5}  {:<52} {:>11} {:>11} {:>11} {:>13}{}\n", stage, own.units,
        own.first_unit + " .. " + own.last_unit, count_text(static_cast<double>(own.parameters)),
        bytes_text(own.static_bytes()), bytes_text(own.memory.activations), flops_text(own.flops),
        stage == facts.slowest && facts.stages.size() > 1 ? "  slowest" : "");
  }
  text +=
      "\nof one rank of a stage: the parameters that it computes with; static: bytes for "
      "parameters, "
      "gradients and optimizer state; its work on a row\n";
  return text;
}

std::string layout_json(const LayoutFacts& facts) {
  using Json = nlohmann::json;
  Json mesh = {{"world", facts.mesh.world()}, {"ranks_per_node", facts.mesh.ranks_per_node()}};
  for (const Axis axis : kAxes) mesh[axis_name(axis)] = facts.mesh.degree(axis);
  Json stages = Json::array();
  for (const StageFacts& stage : facts.stages) {
    stages.push_back({{"first_unit", stage.first_unit},
                      {"last_unit", stage.last_unit},
                      {"units", stage.units},
                      {"parameters", stage.parameters},
                      {"static_bytes", stage.static_bytes()},
                      {"activation_bytes", stage.memory.activations},
                      {"transient_bytes", stage.memory.transient},
                      {"flops", stage.flops}});
  }
  const Json json = {
      {"mesh", mesh},
      {"strategy", facts.strategy},
      {"dispatcher", facts.dispatcher},
      {"optimizer", facts.optimizer},
      {"precision", facts.precision},
      {"row", {{"tokens", facts.row.tokens}, {"visual_tokens", facts.row.visual_tokens}}},
      {"stages", std::move(stages)},
      {"slowest_stage", facts.slowest}};
  return json.dump(2) + "\n";
}

}  // namespace keyseat::tool::layout
