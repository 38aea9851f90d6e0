// strategy/three_d with its mutations (keyseat/mutation.h): the same code, made wrong on purpose.
#pragma once

#include <memory>

#include "keyseat/interfaces/strategy.h"

namespace keyseat::test {

std::shared_ptr<Strategy> make_mutated_three_d(const Options& options);

}  // namespace keyseat::test
