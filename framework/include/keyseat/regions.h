// Regions: the named parts of a unit on which recompute policies and the graph capturer act. One
// list serves both.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "keyseat/export.h"

namespace keyseat {

enum class Region {
  kAttn,           // token mixer: projections and core_attn
  kCoreAttn,       // inside attn: rope, softmax(q k^T) v
  kMlp,            // dense feed-forward
  kMoe,            // router, dispatch, experts, combine
  kMoeRouter,      // inside moe
  kMoePreprocess,  // inside moe: plan
  kMoeAct,         // inside moe: expert activation
  kLayernorm,
  kSharedExperts,
  kGdn,
  kVisionAttn,
  kVisionMlp,
  kProjector,
};

KEYSEAT_API std::string_view region_name(Region region);  // "core_attn"
KEYSEAT_API std::optional<Region> region_from_name(std::string_view name);
KEYSEAT_API std::optional<Region> region_parent(
    Region region);  // core_attn -> attn; a scope includes its children
KEYSEAT_API const std::vector<Region>& all_regions();

}  // namespace keyseat
