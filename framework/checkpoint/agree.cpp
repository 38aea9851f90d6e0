#include "checkpoint/agree.h"

#include <ATen/ops/empty.h>

namespace keyseat::checkpoint {

std::vector<std::vector<int64_t>> gather_numbers(const std::vector<int64_t>& own, Comm& comm,
                                                 int64_t world) {
  if (world == 1) return {own};
  const auto count = static_cast<int64_t>(own.size());
  const at::Tensor mine = at::empty({1, count}, at::kLong);
  std::copy(own.begin(), own.end(), mine.data_ptr<int64_t>());
  const at::Tensor all = at::empty({world, count}, at::kLong);
  std::vector<int64_t> ranks(world);
  std::iota(ranks.begin(), ranks.end(), 0);
  comm.group(ranks).all_gather(all, mine, std::vector<int64_t>(world, 1))->wait();
  std::vector<std::vector<int64_t>> numbers;
  for (int64_t rank = 0; rank < world; ++rank) {
    const int64_t* row = all.data_ptr<int64_t>() + rank * count;
    numbers.emplace_back(row, row + count);
  }
  return numbers;
}

bool any_rank(bool own, Comm& comm, int64_t world) {
  const auto numbers = gather_numbers({own ? 1 : 0}, comm, world);
  return std::any_of(numbers.begin(), numbers.end(),
                     [](const auto& values) { return values[0] != 0; });
}

void throw_where_any(const Problems& own, Comm& comm, int64_t world) {
  std::vector<int64_t> ranks;
  const auto numbers = gather_numbers({own.empty() ? 0 : 1}, comm, world);
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
