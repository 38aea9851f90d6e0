// Calls of a communicator's plugin, which sees a dead peer as a broken connection; the monitor
// knows who it was.
#pragma once

#include <c10/util/Exception.h>

#include <string>

#include "comm/monitor.h"

namespace keyseat::comm {

// Throws the verdict, or R2 where there is none in a moment: what failed, and why.
[[noreturn]] inline void throw_broken(const Monitor* monitor, const std::string& what,
                                      const std::string& why) {
  constexpr double kVerdictSeconds = 2.0;
  if (monitor != nullptr) monitor->check_soon(kVerdictSeconds);
  throw Error(Problem{Code::kR2Communication, {}, what, why, ""});
}

// Runs `call`; what it throws, an Error excepted, goes through throw_broken. `what()` says what was
// called.
template <typename What, typename Call>
auto guarded_call(const Monitor* monitor, const What& what, const Call& call) {
  try {
    return call();
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& error) {
    throw_broken(monitor, what(), error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw_broken(monitor, what(), error.what());
  }
}

}  // namespace keyseat::comm
