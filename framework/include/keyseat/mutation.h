// Switches that make code wrong on purpose, so that a test can be seen to fail. In every library
// KEYSEAT_MUTATED is the constant false. A test that compiles a source file once more, with
// KEYSEAT_MUTATIONS defined before its first include, turns one mutation on by its name.
#pragma once

#ifdef KEYSEAT_MUTATIONS
#include <string>

namespace keyseat {
inline std::string active_mutation;  // of the whole test process
}
#define KEYSEAT_MUTATED(name) (::keyseat::active_mutation == (name))
#else
#define KEYSEAT_MUTATED(name) false
#endif
