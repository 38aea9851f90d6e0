// Settings and sizes that a config or a caller must get right: a C3 error, not a fault of the data.
#pragma once

#include <string>

#include "keyseat/status.h"

namespace keyseat::data {

inline void require(bool condition, const std::string& what) {
  if (condition) return;
  Problem problem;
  problem.code = Code::kC3Value;
  problem.what = what;
  throw Error(std::move(problem));
}

}  // namespace keyseat::data
