#include "trace.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "keyseat/status.h"

namespace keyseat_strategy_fsdp {

namespace {

constexpr const char* kLaneNames[] = {"compute", "gather", "reduce"};

}  // namespace

Trace::Trace(const std::string& path, int64_t rank)
    : path_(fmt::format("{}.{}.json", path, rank)), rank_(rank), file_(path_, std::ios::trunc) {
  file_ << "[\n";
  check();
}

void Trace::note(Lane lane, const std::string& name, bool begins) {
  if (path_.empty()) return;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  events_.push_back({lane, name, begins, std::chrono::duration<double, std::micro>(now).count()});
}

void Trace::flush() {
  if (path_.empty()) return;
  for (const Event& event : events_) {
    // Gathers and reductions overlap one another, so their ends are matched by id, not by nesting.
    const bool nests = event.lane == Lane::kCompute;
    nlohmann::json line{{"name", event.name},
                        {"cat", kLaneNames[static_cast<int>(event.lane)]},
                        {"ph", nests ? (event.begins ? "B" : "E") : (event.begins ? "b" : "e")},
                        {"ts", event.microseconds},
                        {"pid", rank_},
                        {"tid", static_cast<int>(event.lane)}};
    if (!nests) line["id"] = event.name;
    file_ << line.dump() << ",\n";
  }
  events_.clear();
  file_.flush();
  check();
}

void Trace::check() const {
  if (file_.good()) return;
  throw keyseat::Error(keyseat::Problem{keyseat::Code::kR7File,
                                        {path_, 0, 0},
                                        "the trace cannot be written",
                                        "",
                                        "choose a folder that exists (strategy.options.trace)"});
}

}  // namespace keyseat_strategy_fsdp
