// What a parity run says: one check per recorded value, and what was left out.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace keyseat::tool::parity {

// Which of the two differences the limit is for.
enum class Measure { kMaxAbs, kRelL2 };

struct Check {
  std::string name;
  double max_abs = 0;  // largest difference of an element; infinite where nothing could be compared
  double rel_l2 = 0;   // L2 norm of the difference / L2 norm of the recorded values
  double limit = 0;
  Measure measure = Measure::kMaxAbs;
  bool pass = false;
  std::string detail;  // of a failed check: the element with both values, or what is missing

  double share() const;  // of the limit; infinite for a failed exact check
};

struct NotCompared {
  std::string name, why;
  bool excused = false;  // false: something that ought to have been compared; the run fails
};

struct Report {
  std::string case_name;
  std::string kernels;  // "fast" or "naive"; empty where no kernel of the model runs
  std::vector<Check> checks;
  std::vector<NotCompared> not_compared;

  bool pass() const;
};

nlohmann::json report_json(const Report& report);

// Failed checks first, then the ones closest to their limits.
std::string report_table(const Report& report);

}  // namespace keyseat::tool::parity
