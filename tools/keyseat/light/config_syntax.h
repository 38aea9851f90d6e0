#pragma once
// Syntax errors of configurations without LibTorch.

namespace keyseat::tool {

// Reads every existing *.toml file among the arguments with its bases. Where one cannot be read
// past a syntax error or a missing file, prints all such problems and returns the exit status; else
// 0.
int config_syntax_status(int argc, const char* const* argv);

}  // namespace keyseat::tool
