#include "tools/keyseat/parity/tap_names.h"

namespace keyseat::tool::parity {

namespace {

// "7" out of "decoder.layers.7" with the prefix "decoder.layers."; nothing where it does not match.
std::optional<std::string> number_behind(const std::string& name, std::string_view prefix) {
  if (!name.starts_with(prefix) || name.size() == prefix.size()) return std::nullopt;
  const std::string rest = name.substr(prefix.size());
  const bool number = rest.find_first_not_of("0123456789") == std::string::npos;
  return number ? std::optional(rest) : std::nullopt;
}

void add_layer(const ChainUnit& unit, const std::string& layer, std::vector<TapName>& taps) {
  const std::string tap = unit.name + ".", output = "layer." + layer + ".";
  taps.push_back({tap + "attn", output + "attn", TapKind::kHidden});
  const UnitSpec& spec = unit.unit->spec();
  if (spec.top_k > 0) {
    taps.push_back({tap + "router_logits", output + "router_logits", TapKind::kRouterLogits});
    taps.push_back(
        {tap + "topk_index", output + "router_topk_", TapKind::kTopK, tap + "topk_weight"});
  }
  taps.push_back({tap + "mlp", output + "mlp", TapKind::kHidden});
  taps.push_back({tap + "hidden", output + "hidden", TapKind::kHidden});
  const bool deepstack =
      std::any_of(spec.reads.begin(), spec.reads.end(),
                  [](const TensorSpec& read) { return read.name.starts_with("deepstack."); });
  if (deepstack) {
    taps.push_back({tap + "hidden_deepstack", output + "hidden_deepstack", TapKind::kDeepstackSum});
  }
}

}  // namespace

std::vector<TapName> known_taps(const Chain& chain) {
  std::vector<TapName> taps;
  for (const ChainUnit& unit : chain.units()) {
    const std::string& name = unit.name;
    const size_t before = taps.size();
    if (name == "vision.patch_embed") {
      taps.push_back({name + ".projected", "patch_embed", TapKind::kPatches});
      taps.push_back({name + ".hidden", "embed", TapKind::kPatches});
    } else if (const auto block = number_behind(name, "vision.blocks.")) {
      taps.push_back({name + ".hidden", "block." + *block, TapKind::kPatches});
    } else if (name == "projector.merger") {
      taps.push_back({name + ".merged", "merged", TapKind::kVisualTokens});
    } else if (const auto level = number_behind(name, "projector.deepstack_merger_list.")) {
      taps.push_back({name + ".merged", "deepstack." + *level, TapKind::kVisualTokens});
    } else if (name == "decoder.embed_tokens") {
      taps.push_back({name + ".hidden", "inputs_embeds", TapKind::kHidden});
    } else if (const auto layer = number_behind(name, "decoder.layers.")) {
      add_layer(unit, *layer, taps);
    } else if (name == "decoder.head") {
      taps.push_back({name + ".normed", "final_norm", TapKind::kHidden});
      taps.push_back({name + ".logits", "logits", TapKind::kLogits});
      taps.push_back({name + ".per_token_loss", "per_token_loss", TapKind::kLogits});
    }
    for (size_t i = before; i < taps.size(); ++i) {
      const bool whole = taps[i].output == "logits";  // of all rows, on every rank
      taps[i].layout = whole ? Layout::kWhole : unit.unit->spec().layout;
    }
  }
  return taps;
}

}  // namespace keyseat::tool::parity
