// Turns a mutation (keyseat/mutation.h) of this test program on while it lives.
#pragma once

#include <string>

namespace keyseat::test {

class Mutation {
 public:
  explicit Mutation(const std::string& name);
  ~Mutation();
  Mutation(const Mutation&) = delete;
};

}  // namespace keyseat::test
