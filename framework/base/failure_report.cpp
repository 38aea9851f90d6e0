#include "base/failure_report.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace keyseat {
namespace {

constexpr char kOwn = 'F', kLost = 'L';
constexpr char kSeparator = '\x1e';  // of records, as in ASCII

}  // namespace

bool send_failure_report(const FailureReport& report) {
  const char* const variable = std::getenv(kReportVariable);
  if (variable == nullptr) return false;
  const int descriptor = std::atoi(variable);
  std::string bytes(1, report.lost_a_peer ? kLost : kOwn);
  for (const std::string& text : report.texts) bytes += text + kSeparator;
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t now = write(descriptor, bytes.data() + sent, bytes.size() - sent);
    if (now < 0 && errno != EINTR) return false;
    if (now > 0) sent += static_cast<size_t>(now);
  }
  return true;
}

std::optional<FailureReport> parse_failure_report(const std::string& received) {
  if (received.empty() || (received[0] != kOwn && received[0] != kLost)) return std::nullopt;
  FailureReport report{received[0] == kLost, {}};
  size_t begin = 1;
  for (size_t end = received.find(kSeparator, begin); end != std::string::npos;
       end = received.find(kSeparator, begin)) {
    report.texts.push_back(received.substr(begin, end - begin));
    begin = end + 1;
  }
  return report;
}

}  // namespace keyseat
