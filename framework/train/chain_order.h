// Order of the units of a chain: blocks one after another, anchored units behind their anchor.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "keyseat/interfaces/block.h"

namespace keyseat {

// A unit of block number `block`, before it has a place in the chain.
struct PlacedUnit {
  int block = 0;
  std::unique_ptr<Unit> unit;
  bool converts = false;  // gives a tensor another layout (train/conversion_unit.h)
};

// Puts every unit with an anchor directly behind the one writer of that name; units with the same
// anchor keep their order. `refuse(unit, what, why, remedy)` receives anchors that are unknown,
// ambiguous or circular; such units are left out.
using RefuseUnit = std::function<void(const PlacedUnit&, std::string, std::string, std::string)>;
std::vector<PlacedUnit> order_units(std::vector<PlacedUnit> units, const RefuseUnit& refuse);

}  // namespace keyseat
