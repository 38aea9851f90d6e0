#include "interfaces/contract.h"

#include <fmt/format.h>

namespace keyseat {

void contract_broken(const std::string& who, const std::string& what) {
  throw Error(Problem{Code::kR4Contract,
                      {},
                      who + " broke a rule of its interface: " + what,
                      "",
                      "This is a mistake in the plugin, not in the config."});
}

std::string tensor_text(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return fmt::format("{} [{}]", c10::toString(tensor.scalar_type()),
                     fmt::join(tensor.sizes().begin(), tensor.sizes().end(), ", "));
}

}  // namespace keyseat
