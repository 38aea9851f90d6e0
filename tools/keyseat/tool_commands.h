#pragma once
// The commands of libkeyseat_tool.so, one per file command_NAME.cpp.

#include "tools/keyseat/commands.h"

namespace keyseat::tool {

int command_train(int argc, const char* const* argv);
int command_eval(int argc, const char* const* argv);
int command_parity(int argc, const char* const* argv);
int command_bench(int argc, const char* const* argv);
int command_data(int argc, const char* const* argv);
int command_chain(int argc, const char* const* argv);
int command_config(int argc, const char* const* argv);
int command_check(int argc, const char* const* argv);
int command_describe(int argc, const char* const* argv);
int command_version(int argc, const char* const* argv);

}  // namespace keyseat::tool
