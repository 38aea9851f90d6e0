#pragma once
// The torch-free commands, one per file light/command_NAME.cpp; they run in bin/keyseat itself.

namespace keyseat::tool {

int command_list(int argc, const char* const* argv);
int command_launch(int argc, const char* const* argv);

}  // namespace keyseat::tool
