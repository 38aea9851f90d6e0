// The end of a process that failed.
#pragma once

#include <string>
#include <vector>

#include "keyseat/export.h"
#include "keyseat/status.h"

namespace keyseat::comm {

// Says why the process fails: to keyseat launch, which prints the same text of many ranks once,
// else on stderr. Returns `status`. Where a rank is lost, threads of the communicator may never
// end; then it does not return: the process leaves at once, without them.
KEYSEAT_API int say_last_words(const std::vector<std::string>& texts, int status);
// The same of an Error: its problems, and the status of the first one's family.
KEYSEAT_API int say_last_words(const Problems& problems);

// From now on an exception that no thread catches (Gloo's throw where ranks disagree) waits a
// moment for the verdict that explains it, and ends the process with R2 instead of a core dump.
void catch_terminate();
bool terminating();  // such an exception has been thrown

// Says why and ends the process at once, whatever its threads wait for. `lost`: because another
// rank is. Returns only where another thread is doing so already.
void end_process(const Problem& problem, bool lost);

// True for the first caller only, which then says why the process ends.
bool claim_last_words();

}  // namespace keyseat::comm
