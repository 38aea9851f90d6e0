#include "full.h"

#include "keyseat/suggest.h"

namespace keyseat_recompute_full {

keyseat::OptionSchema Full::options() {
  return {keyseat::Option("except", keyseat::OptionType::kStringList)
              .defaults_to(std::vector<std::string>{"head"})
              .doc("Units that keep everything, as \"head\" (of any block), \"decoder.head\" or "
                   "\"vision\" (a whole block); the backward of the head follows its forward at "
                   "once, so that running it again frees nothing.")};
}

Full::Full(const keyseat::Options& options, const keyseat::PluginHost& /*host*/)
    : options_(options), except_(options.get_string_list("except")) {}

keyseat::Problems Full::check_names(const std::vector<keyseat::UnitName>& units) const {
  if (!options_.given("except")) return {};  // the head is left out where there is one
  std::vector<std::string> known;
  for (const keyseat::UnitName& unit : units)
    known.insert(known.end(), {unit.block, unit.unit, unit.block + "." + unit.unit});
  keyseat::Problems problems;
  for (const std::string& name : except_) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    std::string remedy = keyseat::did_you_mean(name, known);
    if (remedy.empty()) remedy = "`keyseat chain CONFIG --units` lists the units.";
    problems.push_back(options_.problem(
        keyseat::Code::kC4Combination, "except",
        fmt::format("\"{}\" is no block and no unit of the chain", name), "", std::move(remedy)));
  }
  return problems;
}

bool Full::replays_unit(const std::string& block, const std::string& unit) const {
  for (const std::string& name : except_) {
    if (name == unit || name == block || name == block + "." + unit) return false;
  }
  return true;
}

std::vector<at::Tensor> Full::run_(keyseat::Region /*region*/, const keyseat::RegionFunction& fn,
                                   std::vector<at::Tensor> inputs,
                                   keyseat::StepContext& /*context*/) {
  return fn(inputs);
}

}  // namespace keyseat_recompute_full
