// strategy/fsdp with its mutations (keyseat/mutation.h): the same code, made wrong on purpose.
#pragma once

#include <memory>

#include "keyseat/interfaces/strategy.h"

namespace keyseat::test {

std::shared_ptr<Strategy> make_mutated_fsdp(const Options& options);

}  // namespace keyseat::test
