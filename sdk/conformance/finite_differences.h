// Gradients of a model against differences of its loss.
#pragma once

#include "sdk/conformance/model.h"

namespace keyseat::conformance {

// Every parameter of the block under test, along its gradient and along a random half of it; and
// some of the other blocks, whose gradients run through it. fp32 resolves a difference only where
// the gradient is large enough; a block none of whose gradients are is a failure.
void check_finite_differences(Model& model);

}  // namespace keyseat::conformance
