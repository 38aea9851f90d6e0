#include "full.h"

namespace keyseat_recompute_full {

keyseat::OptionSchema Full::options() {
  return {keyseat::Option("except", keyseat::OptionType::kStringList)
              .defaults_to(std::vector<std::string>{"head"})
              .doc("Units that keep everything, as \"head\" (of any block), \"decoder.head\" or "
                   "\"vision\" (a whole block); the backward of the head follows its forward at "
                   "once, so that running it again frees nothing.")};
}

Full::Full(const keyseat::Options& options, const keyseat::PluginHost& /*host*/)
    : except_(options.get_string_list("except")) {}

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
