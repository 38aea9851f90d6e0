// Legend: E experts.
#include "train/router_metrics.h"

namespace keyseat::train {

namespace {

constexpr std::string_view kRouterStatsPrefix = "router.stats.";

// Experts per token of the unit that writes router.stats.LAYER.
std::map<std::string, int64_t> top_k_by_layer(const Chain& chain) {
  std::map<std::string, int64_t> top_k;
  for (const ChainUnit& unit : chain.units()) {
    for (const TensorSpec& write : unit.unit->spec().writes) {
      if (write.name.starts_with(kRouterStatsPrefix))
        top_k[write.name.substr(kRouterStatsPrefix.size())] = unit.unit->spec().top_k;
    }
  }
  return top_k;
}

std::vector<double> doubles(const at::Tensor& values_E) {
  const at::Tensor wide_E = values_E.to(at::kDouble).contiguous();
  return {wide_E.data_ptr<double>(), wide_E.data_ptr<double>() + wide_E.numel()};
}

}  // namespace

double relative_entropy(const std::vector<double>& values) {
  double sum = 0, entropy = 0;
  for (const double value : values) sum += value;
  if (!(sum > 0)) return 0;
  for (const double value : values) {
    const double share = value / sum;
    if (share > 0) entropy -= share * std::log(share);
  }
  return values.size() > 1 ? entropy / std::log(static_cast<double>(values.size())) : 1;
}

std::map<std::string, RouterMetrics> router_metrics(const Chain& chain,
                                                    const std::map<std::string, at::Tensor>& stats,
                                                    int64_t tokens) {
  const std::map<std::string, int64_t> top_k = top_k_by_layer(chain);
  std::map<std::string, RouterMetrics> layers;
  for (const auto& [layer, stats_2E] : stats) {
    RouterMetrics& metrics = layers[layer];
    const std::vector<double> load = doubles(stats_2E.select(0, 1));
    int64_t routed = 0;
    for (const double rows : load) {
      metrics.load.push_back(std::llround(rows));
      routed += metrics.load.back();
    }
    metrics.load_entropy = relative_entropy(load);
    metrics.router_entropy = relative_entropy(doubles(stats_2E.select(0, 0)));
    metrics.dropped = top_k.at(layer) * tokens - routed;
  }
  return layers;
}

}  // namespace keyseat::train
