#pragma once
// Running this programme again as a child, for what may end the process that does it.

#include <string>
#include <vector>

namespace keyseat::tool {

struct ChildResult {
  int exit_status = 0;
  int signal = 0;          // that ended it; 0: it ended by itself
  bool timed_out = false;  // it was ended after `limit_seconds`
  std::string output;      // stdout and stderr together
};

// Runs `keyseat ARGUMENTS...` and waits for it, for at most `limit_seconds` (0: for ever). Error
// (R7) where it cannot be started.
ChildResult run_keyseat(const std::vector<std::string>& arguments, double limit_seconds = 0);

}  // namespace keyseat::tool
