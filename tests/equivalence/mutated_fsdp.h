// strategy/fsdp with its mutations (keyseat/mutation.h): the same code, made wrong on purpose.
#pragma once

#include <memory>
#include <string>

#include "keyseat/interfaces/strategy.h"

namespace keyseat::test {

std::shared_ptr<Strategy> make_mutated_fsdp(const Options& options);

// Turns one mutation on while it lives.
class Mutation {
 public:
  explicit Mutation(const std::string& name);
  ~Mutation();
  Mutation(const Mutation&) = delete;
};

}  // namespace keyseat::test
