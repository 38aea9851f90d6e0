// One InputSpec for the data source out of those of all blocks.
#pragma once

#include "keyseat/chain.h"

namespace keyseat {

// What one block leaves unset another may give; two different values are a problem (C4) that names
// both blocks. max_positions is a bound, so the smallest one counts.
InputSpec merge_input_specs(const std::vector<NamedBlock>& blocks, Problems& problems);

}  // namespace keyseat
