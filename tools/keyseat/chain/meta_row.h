// A row that has sizes and no memory.
#pragma once

#include "keyseat/batch.h"
#include "tools/keyseat/chain/chain_facts.h"

namespace keyseat::tool::chain {

// One sample: an image, as square as its tokens allow, then text that is trained on. Throws Error
// (C4) where the model takes no images or the row has no room for text.
Row meta_row(const RowShape& shape, const InputSpec& input);

}  // namespace keyseat::tool::chain
