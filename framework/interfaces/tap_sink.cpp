// Anchor of the receiver of taps.
#include "keyseat/context.h"

namespace keyseat {

TapSink::~TapSink() = default;

}  // namespace keyseat
