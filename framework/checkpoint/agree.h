// One verdict for all ranks: a rank whose disk is full must not leave the others waiting.
#pragma once

#include "keyseat/interfaces/comm.h"
#include "keyseat/status.h"

namespace keyseat::checkpoint {

// Throws on every rank where any has problems: its own, or which ranks have some.
void throw_where_any(const Problems& own, Comm& comm, int64_t world);

}  // namespace keyseat::checkpoint
