// One verdict for all ranks: a rank whose disk is full must not leave the others waiting.
#pragma once

#include <vector>

#include "keyseat/interfaces/comm.h"
#include "keyseat/status.h"

namespace keyseat::checkpoint {

// `own` (numbers of this rank, as many on every rank) of all ranks, in their order.
std::vector<std::vector<int64_t>> gather_numbers(const std::vector<int64_t>& own, Comm& comm,
                                                 int64_t world);

// Whether it is true on any rank.
bool any_rank(bool own, Comm& comm, int64_t world);

// Throws on every rank where any has problems: its own, or which ranks have some.
void throw_where_any(const Problems& own, Comm& comm, int64_t world);

}  // namespace keyseat::checkpoint
