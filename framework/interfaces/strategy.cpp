// Kind `strategy`: anchors.
#include "keyseat/interfaces/strategy.h"

namespace keyseat {

UnitEvents::~UnitEvents() = default;
Strategy::~Strategy() = default;

}  // namespace keyseat
