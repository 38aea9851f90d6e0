// The rules of a dispatcher for the MoE layers of a model.
#pragma once

#include "keyseat/chain.h"
#include "keyseat/interfaces/dispatcher.h"

namespace keyseat::train {

// Asks about every MoE layer that differs from the ones before. Problems (C4) without a position
// get `where`.
Problems check_dispatcher(const Chain& chain, const Dispatcher& dispatcher, const Mesh& mesh,
                          const SourcePosition& where);

}  // namespace keyseat::train
