// A layout that is right, and is seen to be wrong under mutations.
#pragma once

#include <string>
#include <vector>

#include "tests/ranks/layout_run.h"

namespace keyseat::test {

// The layout trains as one process; under each of the mutations (tests/equivalence/mutated_fsdp.h)
// it does not, or stops.
void check_mutations(const LayoutChoice& choice, const LayoutModel& model, const StepShape& shape,
                     const std::vector<std::string>& mutations);

}  // namespace keyseat::test
