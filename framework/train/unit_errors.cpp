#include "train/unit_errors.h"

#include <c10/util/Exception.h>

#include "interfaces/contract.h"
#include "keyseat/status.h"

namespace keyseat {
const std::string& plugin_of(const Chain& chain, int index) {
  static const std::string unknown;
  for (const NamedBlock& block : chain.blocks()) {
    if (block.name == chain.units()[index].block) return block.plugin;
  }
  return unknown;
}

std::string unit_label(const Chain& chain, int index) {
  return fmt::format("unit {} ({})", chain.units()[index].name, plugin_of(chain, index));
}

void rethrow_from_unit(const Chain& chain, int index, const char* phase) {
  const auto failed = [&](Code code, const std::string& text) {
    return Error({code,
                  {},
                  fmt::format("{} failed in {}: {}", unit_label(chain, index), phase, text),
                  "",
                  ""});
  };
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    throw failed(Code::kR3Memory, error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    throw failed(Code::kR3Memory, "out of memory");
  } catch (const c10::Error& error) {
    throw failed(Code::kR4Contract, error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw failed(Code::kR4Contract, error.what());
  }
}

void check_parameters_stay(const Chain& chain, int index, const Params& params,
                           const std::vector<at::Tensor>& outputs) {
  const UnitSpec& spec = chain.units()[index].unit->spec();
  for (size_t i = 0; i < params.size(); ++i) {
    for (size_t j = 0; j < outputs.size(); ++j) {
      if (outputs[j].numel() == 0 || !outputs[j].is_alias_of(params.at(i).value())) continue;
      contract_broken(unit_label(chain, index),
                      fmt::format("its output \"{}\" is its parameter \"{}\" or a view of it, "
                                  "which is readable only while the unit runs; return a copy",
                                  spec.writes[j].name, spec.params[i].name));
    }
  }
}

}  // namespace keyseat
