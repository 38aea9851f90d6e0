// How ops refuse inputs that break their contract.
#pragma once

#include <string>

#include "keyseat/status.h"

namespace keyseat::nn {

[[noreturn]] inline void contract_error(std::string what, std::string why, std::string remedy) {
  throw Error(Problem{Code::kR4Contract, {}, std::move(what), std::move(why), std::move(remedy)});
}

}  // namespace keyseat::nn
