// Kind `comm`: anchors and defaults.
#include "keyseat/interfaces/comm.h"

namespace keyseat {

Work::~Work() = default;
CommGroup::~CommGroup() = default;
Comm::~Comm() = default;

Problems Comm::validate(const Rendezvous& /*rendezvous*/) const { return {}; }

}  // namespace keyseat
