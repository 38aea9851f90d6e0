#include "keyseat/version.h"

namespace keyseat {

const char* version() { return "0.1.0"; }

}  // namespace keyseat
