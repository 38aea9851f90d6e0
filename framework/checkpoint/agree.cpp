#include "checkpoint/agree.h"

#include "comm/gather.h"

namespace keyseat::checkpoint {

void throw_where_any(const Problems& own, Comm& comm, int64_t world) {
  std::vector<int64_t> ranks;
  const auto numbers = comm::gather_numbers({own.empty() ? 0 : 1}, comm, world);
  for (size_t rank = 0; rank < numbers.size(); ++rank) {
    if (numbers[rank][0] != 0) ranks.push_back(static_cast<int64_t>(rank));
  }
  if (!own.empty()) throw Error(own);
  if (ranks.empty()) return;
  throw Error(Problem{Code::kR7File,
                      {},
                      fmt::format("rank {} could not read or write its part of a checkpoint",
                                  fmt::join(ranks, ", ")),
                      "all ranks stop together",
                      "Its own message says why."});
}

}  // namespace keyseat::checkpoint
