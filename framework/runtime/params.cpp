#include "keyseat/params.h"

#include "keyseat/status.h"

namespace keyseat {

Params::Params(const std::vector<ParamSpec>* specs, std::vector<ParamHandle> handles)
    : specs_(specs), handles_(std::move(handles)) {
  if (specs_->size() != handles_.size()) {
    throw Error({Code::kR4Contract,
                 {},
                 fmt::format("{} parameter handles were given for {} ParamSpecs", handles_.size(),
                             specs_->size()),
                 "a unit is handed one handle per ParamSpec, in their order",
                 ""});
  }
}

const ParamHandle& Params::at(const std::string& name) const {
  std::string present;
  for (size_t i = 0; i < handles_.size(); ++i) {
    if ((*specs_)[i].name == name) return handles_[i];
    present += (present.empty() ? "" : ", ") + (*specs_)[i].name;
  }
  throw Error({Code::kR4Contract,
               {},
               fmt::format("there is no parameter \"{}\" here", name),
               fmt::format("the unit declares: {}", present.empty() ? "none" : present),
               "add it to UnitSpec::params"});
}

bool Params::has(const std::string& name) const {
  return specs_ != nullptr && std::any_of(specs_->begin(), specs_->end(),
                                          [&](const ParamSpec& spec) { return spec.name == name; });
}

}  // namespace keyseat
