// Kind `data`: anchor.
#include "keyseat/interfaces/data.h"

namespace keyseat {

Data::~Data() = default;

}  // namespace keyseat
