#include "tools/keyseat/chain/chain_facts.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/keyseat/chain/numbers_text.h"

namespace keyseat::tool::chain {
namespace {

void add_row(std::string& text, const std::string& name, const std::string& what,
             const Totals& sums, const std::string& mark) {
  text += fmt::format("{:<30} {:<27} {:>10} {:>10} {:>10} {:>13} {:>11}  {}\n", name, what,
                      count_text(static_cast<double>(sums.parameters)),
                      count_text(static_cast<double>(sums.experts)), count_text(sums.active),
                      flops_text(sums.flops), bytes_text(sums.activation_bytes), mark);
}

void add_memory(std::string& text, const ChainFacts& facts) {
  const MemoryEstimate& memory = facts.memory;
  const double total = memory.parameters + memory.gradients + memory.optimizer +
                       memory.activations + memory.transient;
  text += fmt::format(
      "\nmemory of one rank that holds everything (strategy {}, optimizer {}, recompute {}, {}):\n"
      "  parameters {}, gradients {}, optimizer {}, activations {}, transient {}: {}\n",
      facts.strategy, facts.optimizer, facts.recompute, facts.precision,
      bytes_text(memory.parameters), bytes_text(memory.gradients), bytes_text(memory.optimizer),
      bytes_text(memory.activations), bytes_text(memory.transient), bytes_text(total));
  if (facts.recompute != "none") {
    text += "  (activations as without recompute)\n";
  }
}

}  // namespace

Totals totals(const BlockFacts& block) {
  Totals sums;
  for (const UnitFacts& unit : block.units) {
    sums.parameters += unit.parameters;
    sums.experts += unit.experts;
    sums.active += unit.active;
    sums.flops += unit.flops;
    sums.activation_bytes += unit.activation_bytes;
  }
  return sums;
}

Totals totals(const ChainFacts& facts) {
  Totals sums;
  for (const BlockFacts& block : facts.blocks) {
    const Totals part = totals(block);
    sums.parameters += part.parameters;
    sums.experts += part.experts;
    sums.active += part.active;
    sums.flops += part.flops;
    sums.activation_bytes += part.activation_bytes;
  }
  return sums;
}

std::string chain_text(const ChainFacts& facts, bool units) {
  std::string text = fmt::format("{:<30} {:<27} {:>10} {:>10} {:>10} {:>13} {:>11}\n", "block",
                                 "plugin", "parameters", "experts", "active", "forward", "kept");
  for (const BlockFacts& block : facts.blocks) {
    add_row(text, block.name, block.plugin, totals(block), block.trained ? "" : "frozen");
    if (!units) continue;
    for (const UnitFacts& unit : block.units) {
      add_row(text, "  " + unit.name,
              fmt::format("crosses {}", bytes_text(static_cast<double>(unit.live_bytes))),
              {unit.parameters, unit.experts, unit.active, unit.flops, unit.activation_bytes},
              unit.replayed ? "runs again" : "");
    }
  }
  add_row(text, "model", "", totals(facts), "");
  text += fmt::format(
      "\nforward and kept activations are those of a row of {} tokens, {} of them visual\n",
      facts.row.tokens, facts.row.visual_tokens);
  add_memory(text, facts);
  text += fmt::format("\ndry run: forward and backward on meta tensors passed, {:.1f} s\n",
                      facts.dry_run_seconds);
  return text;
}

std::string chain_json(const ChainFacts& facts) {
  using Json = nlohmann::json;
  Json blocks = Json::array();
  for (const BlockFacts& block : facts.blocks) {
    Json units = Json::array();
    for (const UnitFacts& unit : block.units) {
      units.push_back({{"name", unit.name},
                       {"parameters", unit.parameters},
                       {"expert_parameters", unit.experts},
                       {"active_parameters", unit.active},
                       {"forward_flops", unit.flops},
                       {"activation_bytes", unit.activation_bytes},
                       {"live_bytes_before", unit.live_bytes},
                       {"trained", unit.trained},
                       {"runs_again", unit.replayed}});
    }
    const Totals sums = totals(block);
    blocks.push_back({{"name", block.name},
                      {"plugin", block.plugin},
                      {"trained", block.trained},
                      {"parameters", sums.parameters},
                      {"expert_parameters", sums.experts},
                      {"active_parameters", sums.active},
                      {"units", std::move(units)}});
  }
  const Totals sums = totals(facts);
  const MemoryEstimate& memory = facts.memory;
  const Json json = {{"blocks", std::move(blocks)},
                     {"parameters", sums.parameters},
                     {"expert_parameters", sums.experts},
                     {"active_parameters", sums.active},
                     {"row",
                      {{"tokens", facts.row.tokens},
                       {"visual_tokens", facts.row.visual_tokens},
                       {"forward_flops", sums.flops}}},
                     {"memory_bytes",
                      {{"parameters", memory.parameters},
                       {"gradients", memory.gradients},
                       {"optimizer", memory.optimizer},
                       {"activations", memory.activations},
                       {"transient", memory.transient}}},
                     {"strategy", facts.strategy},
                     {"optimizer", facts.optimizer},
                     {"recompute", facts.recompute},
                     {"precision", facts.precision},
                     {"dry_run_seconds", facts.dry_run_seconds}};
  return json.dump(2) + "\n";
}

}  // namespace keyseat::tool::chain
