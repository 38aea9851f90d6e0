#include "selective.h"

#include "region_replay.h"

namespace keyseat_recompute_selective {

using keyseat::Region;

keyseat::OptionSchema Selective::options() {
  std::vector<std::string> names;
  for (const Region region : keyseat::all_regions()) names.emplace_back(region_name(region));
  return {keyseat::Option("regions", keyseat::OptionType::kStringList)
              .defaults_to(std::vector<std::string>{"moe_act", "layernorm"})
              .choices(names)
              .doc("Regions that are run again; one that has regions inside includes them.")};
}

Selective::Selective(const keyseat::Options& options, const keyseat::PluginHost& /*host*/) {
  for (const std::string& name : options.get_string_list("regions")) {
    chosen_.push_back(keyseat::region_from_name(name).value());
  }
}

bool Selective::replays(Region region) const {
  for (std::optional<Region> scope = region; scope; scope = region_parent(*scope)) {
    if (std::find(chosen_.begin(), chosen_.end(), *scope) != chosen_.end()) return true;
  }
  return false;
}

std::vector<at::Tensor> Selective::run_(Region region, const keyseat::RegionFunction& fn,
                                        std::vector<at::Tensor> inputs,
                                        keyseat::StepContext& context) {
  // Inside the second run of an enclosing region everything is needed at once.
  if (!replays(region) || context.replay()) return fn(inputs);
  return replayed_region(region, fn, std::move(inputs), context);
}

}  // namespace keyseat_recompute_selective
