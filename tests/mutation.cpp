#define KEYSEAT_MUTATIONS
#include "tests/mutation.h"

#include "keyseat/mutation.h"

namespace keyseat::test {

Mutation::Mutation(const std::string& name) { active_mutation = name; }
Mutation::~Mutation() { active_mutation.clear(); }

}  // namespace keyseat::test
