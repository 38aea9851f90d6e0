// Legend: L mixture-of-experts layers, E experts.
#include <ATen/ops/stack.h>

#include "keyseat/nn/router.h"
#include "nn/contract.h"

namespace keyseat::nn {

at::Tensor load_balancing_loss(const std::vector<at::Tensor>& stats_2E, const at::Tensor& counts_LE,
                               int64_t tokens, bool pooled) {
  const auto layers = static_cast<int64_t>(stats_2E.size());
  if (layers == 0 || counts_LE.dim() != 2 || counts_LE.size(0) != layers) {
    contract_error(
        fmt::format("load_balancing_loss got statistics of {} layers and counts {}", layers,
                    fmt::join(counts_LE.sizes(), "x")),
        "counts are [L, E], one row for each statistics tensor [2, E], and L is at least 1",
        "declare the unit of the auxiliary loss only where a layer writes router.stats");
  }
  std::vector<at::Tensor> sums;
  sums.reserve(stats_2E.size());
  for (const at::Tensor& stats : stats_2E) sums.push_back(stats.select(0, 0));
  const at::Tensor probability_LE = at::stack(sums);
  const int64_t experts = probability_LE.size(1);
  // The counts carry no gradient; without tokens both factors are zero and so is the loss.
  const at::Tensor fraction_LE = counts_LE.detach()
                                     .to(probability_LE.scalar_type())
                                     .div(static_cast<double>(std::max<int64_t>(tokens, 1)));
  const double scale = static_cast<double>(experts) / static_cast<double>(layers);
  const at::Tensor product =
      pooled ? fraction_LE.mean(0).mul(probability_LE.sum(0)) : fraction_LE.mul(probability_LE);
  return product.sum().mul(scale).reshape({1});
}

}  // namespace keyseat::nn
