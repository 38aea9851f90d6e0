// Collectives of a dispatcher: outputs are made here, and stay alive with their inputs until the
// wait. Counts are rows.
#pragma once

#include <memory>
#include <vector>

#include "keyseat/interfaces/comm.h"
#include "keyseat/interfaces/dispatcher.h"

namespace keyseat::nn {

// An exchange that was begun. wait() gives the output; it is called once.
class KEYSEAT_API Exchange {
 public:
  Exchange() = default;
  Exchange(at::Tensor output, at::Tensor input, std::unique_ptr<Work> work)
      : output_(std::move(output)), input_(std::move(input)), work_(std::move(work)) {}
  at::Tensor wait();  // undefined where nothing was begun

 private:
  at::Tensor output_, input_;
  std::unique_ptr<Work> work_;
};

// Each gives an empty Exchange for an undefined input: nothing travels, on any rank.
KEYSEAT_API Exchange begin_all_to_all(CommGroup& group, const at::Tensor& input,
                                      const std::vector<int64_t>& output_counts,
                                      const std::vector<int64_t>& input_counts);
KEYSEAT_API Exchange begin_all_gather(CommGroup& group, const at::Tensor& input,
                                      const std::vector<int64_t>& counts);
// SUM, added in fp32 where the input is bf16.
KEYSEAT_API Exchange begin_reduce_scatter(CommGroup& group, const at::Tensor& input,
                                          const std::vector<int64_t>& counts);

KEYSEAT_API int64_t sum_of(const std::vector<int64_t>& counts);

// Adds bytes that the rank of `mesh` sends to global rank `to`; nothing is sent to oneself.
KEYSEAT_API void add_sent(LinkTraffic& traffic, const Mesh& mesh, int64_t to, double bytes);

}  // namespace keyseat::nn
