#include "comm/gather.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>

namespace keyseat::comm {

CommGroup& all_ranks(Comm& comm, int64_t world) {
  std::vector<int64_t> ranks(static_cast<size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  return comm.group(ranks);
}

std::vector<std::vector<int64_t>> gather_numbers(const std::vector<int64_t>& own, Comm& comm,
                                                 int64_t world) {
  if (world == 1) return {own};
  const auto count = static_cast<int64_t>(own.size());
  const at::Tensor mine = at::empty({1, count}, at::kLong);
  std::copy(own.begin(), own.end(), mine.data_ptr<int64_t>());
  const at::Tensor all = at::empty({world, count}, at::kLong);
  all_ranks(comm, world)
      .all_gather(all, mine, std::vector<int64_t>(static_cast<size_t>(world), 1))
      ->wait();
  std::vector<std::vector<int64_t>> numbers;
  for (int64_t rank = 0; rank < world; ++rank) {
    const int64_t* row = all.data_ptr<int64_t>() + rank * count;
    numbers.emplace_back(row, row + count);
  }
  return numbers;
}

std::vector<std::string> gather_texts(const std::string& own, Comm& comm, int64_t world) {
  if (world == 1) return {own};
  const auto bytes = static_cast<int64_t>(own.size());
  std::vector<int64_t> counts;
  for (const auto& numbers : gather_numbers({bytes}, comm, world)) counts.push_back(numbers[0]);
  const at::Tensor mine = at::empty({bytes}, at::kByte);
  std::copy(own.begin(), own.end(), mine.data_ptr<uint8_t>());
  const at::Tensor all =
      at::empty({std::accumulate(counts.begin(), counts.end(), int64_t{0})}, at::kByte);
  all_ranks(comm, world).all_gather(all, mine, counts)->wait();
  std::vector<std::string> texts;
  const uint8_t* at = all.data_ptr<uint8_t>();
  for (const int64_t count : counts) {
    texts.emplace_back(at, at + count);
    at += count;
  }
  return texts;
}

bool any_rank(bool own, Comm& comm, int64_t world) {
  const auto numbers = gather_numbers({own ? 1 : 0}, comm, world);
  return std::any_of(numbers.begin(), numbers.end(),
                     [](const auto& values) { return values[0] != 0; });
}

}  // namespace keyseat::comm
