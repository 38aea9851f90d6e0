// Largest differences to the recorded results that rounding explains (fp32, attention-only models).
// Measured between independent implementations, with a margin of about ten.
#pragma once

#include "tools/keyseat/parity/compare.h"

namespace keyseat::tool::parity {

inline constexpr Tolerance kExact{0};
inline constexpr Tolerance kVision{2e-5};
inline constexpr Tolerance kRopeTable{2e-5};
inline constexpr Tolerance kHidden{5e-5};
inline constexpr Tolerance kRouterLogits{5e-5};
inline constexpr Tolerance kRouterWeights{5e-5};
inline constexpr Tolerance kLogits{5e-5};
inline constexpr Tolerance kLoss{1e-5};
inline constexpr Tolerance kGradient{5e-5, Measure::kRelL2, 5e-5};
inline constexpr Tolerance kStepLoss{5e-5};
inline constexpr Tolerance kGradNorm{5e-5, Measure::kRelL2};
inline constexpr Tolerance kChangeAbsSum{1e-3, Measure::kRelL2};
inline constexpr Tolerance kSum{2e-3};
inline constexpr Tolerance kAbsSum{2e-5, Measure::kRelL2};
inline constexpr Tolerance kStoredSum{1e-8};  // the same fp32 numbers added up in fp64

}  // namespace keyseat::tool::parity
