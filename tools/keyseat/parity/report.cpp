#include "tools/keyseat/parity/report.h"

#include <nlohmann/json.hpp>

namespace keyseat::tool::parity {

namespace {

constexpr size_t kShownPassed = 20;

const char* measure_name(Measure measure) {
  return measure == Measure::kMaxAbs ? "max_abs" : "rel_l2";
}

}  // namespace

double Check::share() const {
  const double measured = measure == Measure::kMaxAbs ? max_abs : rel_l2;
  if (std::isnan(measured)) return std::numeric_limits<double>::infinity();
  if (limit > 0) return measured / limit;
  return measured > 0 ? std::numeric_limits<double>::infinity() : 0;
}

bool Report::pass() const {
  return !checks.empty() &&
         std::all_of(checks.begin(), checks.end(), [](const Check& c) { return c.pass; }) &&
         std::all_of(not_compared.begin(), not_compared.end(),
                     [](const NotCompared& n) { return n.excused; });
}

nlohmann::json report_json(const Report& report) {
  nlohmann::json json{
      {"case", report.case_name},
      {"kernels", report.kernels.empty() ? nlohmann::json() : nlohmann::json(report.kernels)},
      {"checks", nlohmann::json::array()},
      {"not_compared", nlohmann::json::array()},
      {"pass", report.pass()}};
  for (const Check& check : report.checks) {
    nlohmann::json row{{"name", check.name},     {"max_abs", check.max_abs},
                       {"rel_l2", check.rel_l2}, {"limit", check.limit},
                       {"pass", check.pass},     {"measure", measure_name(check.measure)}};
    if (!check.detail.empty()) row["detail"] = check.detail;
    json["checks"].push_back(std::move(row));
  }
  for (const NotCompared& item : report.not_compared) {
    json["not_compared"].push_back({{"name", item.name}, {"why", item.why}});
  }
  return json;
}

std::string report_table(const Report& report) {
  std::vector<const Check*> order;
  for (const Check& check : report.checks) order.push_back(&check);
  std::stable_sort(order.begin(), order.end(), [](const Check* a, const Check* b) {
    if (a->pass != b->pass) return b->pass;
    return a->share() > b->share();
  });
  const auto failed = static_cast<size_t>(
      std::count_if(order.begin(), order.end(), [](const Check* c) { return !c->pass; }));
  const size_t shown = std::min(order.size(), failed + kShownPassed);
  std::string text = fmt::format("{:<6} {:>10} {:>10} {:>9} {:<8} {}\n", "", "max_abs", "rel_l2",
                                 "limit", "of", "name");
  for (size_t i = 0; i < shown; ++i) {
    const Check& check = *order[i];
    text += fmt::format("{:<6} {:>10.2e} {:>10.2e} {:>9.1e} {:<8} {}{}{}\n",
                        check.pass ? "ok" : "FAILED", check.max_abs, check.rel_l2, check.limit,
                        measure_name(check.measure), check.name, check.detail.empty() ? "" : ": ",
                        check.detail);
  }
  if (shown < order.size()) {
    text += fmt::format("       and {} more that pass (--json lists all)\n", order.size() - shown);
  }
  for (const NotCompared& item : report.not_compared) {
    text += fmt::format("{:<6} not compared: {}: {}\n", item.excused ? "" : "FAILED", item.name,
                        item.why);
  }
  text += fmt::format("{}{}: {} checks, {} failed, {} not compared: {}\n", report.case_name,
                      report.kernels.empty() ? "" : fmt::format(" ({} kernels)", report.kernels),
                      report.checks.size(), failed, report.not_compared.size(),
                      report.pass() ? "pass" : "FAIL");
  return text;
}

}  // namespace keyseat::tool::parity
