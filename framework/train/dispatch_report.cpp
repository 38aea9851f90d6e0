#include "train/dispatch_report.h"

#include <ATen/ops/tensor.h>

#include "comm/gather.h"

namespace keyseat::train {

DispatcherReport gather_report(Dispatcher& dispatcher, Comm& comm, int64_t world) {
  const DispatcherReport own = dispatcher.take_report();
  at::Tensor sums = at::tensor({own.choices, own.capacity, own.overflow}, at::kLong);
  comm::all_ranks(comm, world).all_reduce(sums, ReduceOp::kSum)->wait();
  const int64_t* values = sums.const_data_ptr<int64_t>();
  return {values[0], values[1], values[2]};
}

std::string routing_of(const Chain& chain) {
  std::vector<std::string> found;
  for (const ChainUnit& unit : chain.units()) {
    const std::string& routing = unit.unit->spec().routing;
    if (routing.empty() || std::find(found.begin(), found.end(), routing) != found.end()) continue;
    found.push_back(routing);
  }
  return found.empty() ? "natural" : fmt::format("{}", fmt::join(found, "; "));
}

std::string dropped_text(const DispatcherReport& report) {
  const auto share = [&](int64_t dropped) {
    return 100 * static_cast<double>(dropped) / static_cast<double>(report.choices);
  };
  std::vector<std::string> parts;
  if (report.capacity > 0)
    parts.push_back(fmt::format("{:.2f} % above the capacity", share(report.capacity)));
  if (report.overflow > 0)
    parts.push_back(fmt::format("{:.2f} % above the bound", share(report.overflow)));
  return parts.empty() ? "" : fmt::format("dropped of the choices: {}", fmt::join(parts, ", "));
}

}  // namespace keyseat::train
