// A unit of the chain that gives a tensor another layout (keyseat/tensors.h).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "keyseat/interfaces/block.h"

namespace keyseat {

// The first dimension that counts T, P, V or N.
std::optional<int> row_dimension(const TensorSpec& spec);

// Whether tensors of this dimension can have the layout.
bool has_layout(DimSymbol rows, Layout layout);

// Whether a rank of the mesh has the same of the tensor in both layouts.
bool same_layout(const TensorSpec& a, const TensorSpec& b, const Mesh& mesh);

const char* layout_text(Layout layout);  // "the rows of the context rank"

// Reads `from` and writes a new version of it in the layout `to`. Forward gathers the whole tensor
// and takes the own share; backward adds up what the shares give each row, once, and takes what
// belongs to the writer's. It stands in the block of `writer`. Precondition: `from` has a row
// dimension, of which both layouts exist.
std::unique_ptr<Unit> make_conversion(std::string name, const UnitSpec& writer, TensorSpec from,
                                      Layout to);

}  // namespace keyseat
