#pragma once
// The one symbol that bin/keyseat looks up in libkeyseat_tool.so.

extern "C" {

// Runs one command. `argc`/`argv` are the command line from the command's name on ("train",
// "run.toml", ...). Returns the exit status. Never throws.
using KeyseatToolMain = int (*)(int argc, const char* const* argv);

__attribute__((visibility("default"))) int keyseat_tool_main(int argc, const char* const* argv);
}
