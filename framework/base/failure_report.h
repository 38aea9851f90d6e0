// How a rank tells `keyseat launch` why it failed, so that the same text of many ranks is printed
// once, and a rank that only lost a peer is not taken for the first failure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "keyseat/export.h"

namespace keyseat {

// Number of the descriptor that takes the report; set by keyseat launch.
inline constexpr const char* kReportVariable = "KEYSEAT_REPORT_FD";

struct FailureReport {
  bool lost_a_peer = false;        // ended because another rank did
  std::vector<std::string> texts;  // as on stderr, one per problem
};

// Sends it where this process was started by keyseat launch; false where it was not: then the text
// belongs on stderr.
KEYSEAT_API bool send_failure_report(const FailureReport& report);

// What was read from the descriptor until its end; nothing where no report was sent.
std::optional<FailureReport> parse_failure_report(const std::string& received);

}  // namespace keyseat
