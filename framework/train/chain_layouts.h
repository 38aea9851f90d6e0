// Layouts of the tensors of a chain under a mesh whose context or tensor ranks share the rows.
#pragma once

#include <vector>

#include "train/chain_order.h"

namespace keyseat {

// Puts a conversion unit directly behind a writer for every other layout that later readers of the
// tensor want. `refuse` receives what cannot be converted: tensors of the batch and derived ones,
// tensors without rows, layouts that the rows of a tensor do not have, routed experts on rows that
// several ranks hold. Nothing changes where one rank has the whole row.
std::vector<PlacedUnit> add_conversions(std::vector<PlacedUnit> units,
                                        const std::vector<DerivedSpec>& derived, const Mesh& mesh,
                                        const RefuseUnit& refuse);

}  // namespace keyseat
