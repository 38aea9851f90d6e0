// What every rank knows, on every rank: small things of the host that accompany a run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "keyseat/export.h"
#include "keyseat/interfaces/comm.h"

namespace keyseat::comm {

// All ranks of a world, in their order, as one group.
KEYSEAT_API CommGroup& all_ranks(Comm& comm, int64_t world);

// `own` (numbers of this rank, as many on every rank) of all ranks, in their order.
KEYSEAT_API std::vector<std::vector<int64_t>> gather_numbers(const std::vector<int64_t>& own,
                                                             Comm& comm, int64_t world);

// The same of texts, which may have any length.
KEYSEAT_API std::vector<std::string> gather_texts(const std::string& own, Comm& comm,
                                                  int64_t world);

// Whether it is true on any rank.
KEYSEAT_API bool any_rank(bool own, Comm& comm, int64_t world);

}  // namespace keyseat::comm
