// SIGTERM and SIGINT: the first one asks the run to save and stop, the second one ends it at once.
#pragma once

namespace keyseat::train {

// The exit status of `keyseat train` where a signal stopped the run and its state was saved.
inline constexpr int kStoppedStatus = 5;

void watch_stop_signals();
bool stop_requested();
// For a message: "SIGTERM"; empty where none came to this rank.
const char* stop_signal_name();
void forget_stop_signals();  // as if none had come, and the system's handling again

}  // namespace keyseat::train
