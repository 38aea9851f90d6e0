// Which tap of the model is which recorded tensor.
#pragma once

#include <string>
#include <vector>

#include "keyseat/chain.h"

namespace keyseat::tool::parity {

enum class TapKind {
  kPatches,       // recorded as vision.OUTPUT and vision_video.OUTPUT
  kVisualTokens,  // the same behind a merger
  kHidden,
  kDeepstackSum,  // recorded only where there are visual tokens
  kRouterLogits,
  kTopK,  // `tap` has the indices, `partner` the weights
  kLogits,
};

struct TapName {
  std::string tap, output;
  TapKind kind;
  std::string partner = {};
  Layout layout = Layout::kWhole;  // of its rows
};

// Every tap that the chain's units must give, in chain order.
std::vector<TapName> known_taps(const Chain& chain);

}  // namespace keyseat::tool::parity
