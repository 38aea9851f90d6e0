#include "train/dispatch_report.h"

#include <ATen/ops/full.h>
#include <doctest/doctest.h>

#include "keyseat/registry.h"
#include "nn/testing.h"
#include "train/metrics.h"

namespace keyseat::train {

TEST_CASE(
    "dispatch report: choices of real tokens, those dropped by the capacity, once per report") {
  nn::check::SortingDispatcher dispatcher;
  at::Tensor index = at::full({4, 2}, 1, at::kLong);
  index.select(0, 1).fill_(-1);  // dropped
  index.select(0, 3).fill_(-1);  // padding
  nn::check::CallContext context(3, 1, Kernels::kFast, {}, &dispatcher);
  dispatcher.plan(index, 2, *context);
  dispatcher.plan(index, 2, *context);
  Registry registry(make_plugin_search({}));
  const auto comm = registry.create<Comm>("self", Options());
  comm->connect({});
  const DispatcherReport report = gather_report(dispatcher, *comm, 1);
  CHECK(report.choices == 12);
  CHECK(report.capacity == 4);
  CHECK(report.overflow == 0);
  CHECK(gather_report(dispatcher, *comm, 1).choices == 0);
}

TEST_CASE("dispatch report: what was dropped and what bends the routing stand on every line") {
  CHECK(dropped_text({}).empty());
  CHECK(dropped_text({.choices = 400, .capacity = 5, .overflow = 1}) ==
        "dropped of the choices: 1.25 % above the capacity, 0.25 % above the bound");
  StepMetrics metrics;
  metrics.dispatched = {.choices = 400, .capacity = 5, .overflow = 1};
  WorkloadLabels labels;
  labels.routing = "forced balance";
  const std::string line = progress_line(metrics, labels, 10, 1.0);
  CHECK(line.find("1.25 % above the capacity") != std::string::npos);
  CHECK(line.find("[routing: forced balance]") != std::string::npos);
  const nlohmann::json json = metrics_json(metrics, labels);
  CHECK(json["routing"] == "forced balance");
  CHECK(json["dropped_choices"]["capacity"] == 5);
  CHECK(json["dropped_choices"]["bound"] == 1);
  CHECK_FALSE(metrics_json(StepMetrics(), {}).contains("dropped_choices"));
}

}  // namespace keyseat::train
