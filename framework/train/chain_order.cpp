#include "train/chain_order.h"

namespace keyseat {
namespace {

bool writes(const PlacedUnit& unit, const std::string& name) {
  const std::vector<TensorSpec>& specs = unit.unit->spec().writes;
  return std::any_of(specs.begin(), specs.end(),
                     [&](const TensorSpec& spec) { return spec.name == name; });
}

}  // namespace

std::vector<PlacedUnit> order_units(std::vector<PlacedUnit> units, const RefuseUnit& refuse) {
  // Anchored units hang below the writer of their anchor; the chain is the walk of that forest.
  std::vector<std::vector<size_t>> below(units.size());
  std::vector<size_t> roots;
  std::vector<bool> refused(units.size(), false);
  for (size_t i = 0; i < units.size(); ++i) {
    const std::string& anchor = units[i].unit->spec().after;
    if (anchor.empty()) {
      roots.push_back(i);
      continue;
    }
    std::vector<size_t> writers;
    for (size_t j = 0; j < units.size(); ++j) {
      if (writes(units[j], anchor)) writers.push_back(j);
    }
    if (writers.size() == 1) {
      below[writers.front()].push_back(i);
      continue;
    }
    refused[i] = true;
    if (writers.empty()) {
      refuse(units[i], fmt::format("is anchored after \"{}\", which no unit writes", anchor),
             "an anchor places a unit behind the writer of a name",
             "add the block that writes it, or switch off what needs it");
    } else {
      refuse(units[i],
             fmt::format("is anchored after \"{}\", which {} units write", anchor, writers.size()),
             "an anchor needs a name with one writer", "anchor it to another name");
    }
  }

  std::vector<size_t> order;
  std::vector<bool> placed(units.size(), false);
  std::vector<size_t> pending(roots.rbegin(), roots.rend());
  while (!pending.empty()) {
    const size_t i = pending.back();
    pending.pop_back();
    placed[i] = true;
    order.push_back(i);
    pending.insert(pending.end(), below[i].rbegin(), below[i].rend());
  }
  for (size_t i = 0; i < units.size(); ++i) {
    if (placed[i] || refused[i]) continue;
    refuse(units[i],
           fmt::format("is anchored after \"{}\", whose writer has no place in the chain itself",
                       units[i].unit->spec().after),
           "anchors must not form a circle", "anchor it to a unit that stands in order");
  }

  std::vector<PlacedUnit> ordered;
  for (size_t i : order) ordered.push_back(std::move(units[i]));
  return ordered;
}

}  // namespace keyseat
