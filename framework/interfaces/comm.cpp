// Kind `comm`: anchors and defaults.
#include "keyseat/interfaces/comm.h"

namespace keyseat {

namespace {
constexpr double kWaitSeconds = 3600;  // of one call; a wait as a whole has no end
}

Work::~Work() = default;
CommGroup::~CommGroup() = default;
Comm::~Comm() = default;

void Work::wait() {
  while (!wait_for(kWaitSeconds)) {
  }
}

void CommGroup::barrier() { begin_barrier()->wait(); }

Problems Comm::validate(const Rendezvous& /*rendezvous*/) const { return {}; }

void Comm::abort() {}

}  // namespace keyseat
