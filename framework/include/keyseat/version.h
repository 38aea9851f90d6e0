#pragma once
// Version of the framework and of the LibTorch it was built against.

namespace keyseat {

// Semantic version of the framework, for example "0.1.0".
const char* version();

// Version of the LibTorch headers the core was compiled with, for example "2.11.0".
const char* libtorch_version();

}  // namespace keyseat
