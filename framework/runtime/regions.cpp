#include "keyseat/regions.h"

namespace keyseat {
namespace {

struct Entry {
  Region region;
  std::string_view name;
  std::optional<Region> parent;
};

const Entry kEntries[] = {
    {Region::kAttn, "attn", std::nullopt},
    {Region::kCoreAttn, "core_attn", Region::kAttn},
    {Region::kMlp, "mlp", std::nullopt},
    {Region::kMoe, "moe", std::nullopt},
    {Region::kMoeRouter, "moe_router", Region::kMoe},
    {Region::kMoePreprocess, "moe_preprocess", Region::kMoe},
    {Region::kMoeAct, "moe_act", Region::kMoe},
    {Region::kLayernorm, "layernorm", std::nullopt},
    {Region::kSharedExperts, "shared_experts", std::nullopt},
    {Region::kGdn, "gdn", std::nullopt},
    {Region::kVisionAttn, "vision_attn", std::nullopt},
    {Region::kVisionMlp, "vision_mlp", std::nullopt},
    {Region::kProjector, "projector", std::nullopt},
};

}  // namespace

std::string_view region_name(Region region) {
  for (const Entry& entry : kEntries) {
    if (entry.region == region) return entry.name;
  }
  return "unknown";
}

std::optional<Region> region_from_name(std::string_view name) {
  for (const Entry& entry : kEntries) {
    if (entry.name == name) return entry.region;
  }
  return std::nullopt;
}

std::optional<Region> region_parent(Region region) {
  for (const Entry& entry : kEntries) {
    if (entry.region == region) return entry.parent;
  }
  return std::nullopt;
}

const std::vector<Region>& all_regions() {
  static const std::vector<Region> regions = [] {
    std::vector<Region> list;
    for (const Entry& entry : kEntries) list.push_back(entry.region);
    return list;
  }();
  return regions;
}

}  // namespace keyseat
