// Blocks that a program gives, as the lowest layer of the tree.
#pragma once

#include <vector>

#include "config/syntax/tree.h"
#include "keyseat/config.h"

namespace keyseat {

// The tree of [[model.blocks]] with these blocks; an empty tree for none.
Node blocks_tree(const std::vector<GivenBlock>& blocks);

}  // namespace keyseat
