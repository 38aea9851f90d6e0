#include "nn/kernels/dispatch.h"
// dispatch.h comes first: it sets the targets for highway.h.
#include <hwy/highway.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "nn/kernels/targets.h"

namespace keyseat::nn::kernels {

std::vector<Target> supported_targets() {
  std::vector<Target> targets;
  hwy::SetSupportedTargetsForTest(0);
  const int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;
  for (int64_t id = 1; id != 0 && id <= usable; id <<= 1)
    if (usable & id) targets.push_back({id, hwy::TargetName(id)});
  return targets;
}

void force_target(int64_t id) {
  hwy::SetSupportedTargetsForTest(id);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

std::optional<Problem> use_target(const std::string& name) {
  const auto lower = [](std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
    return text;
  };
  force_target(0);
  if (lower(name) == "best") return std::nullopt;
  std::vector<std::string> names{"best"};
  for (const Target& target : supported_targets()) {
    if (lower(target.name) == lower(name)) {
      force_target(target.id);
      return std::nullopt;
    }
    names.push_back(target.name);
  }
  return Problem{Code::kC3Value,
                 {},
                 fmt::format("run.cpu_target \"{}\" is not available", name),
                 "it is no instruction set that the kernels are built for and this CPU has",
                 fmt::format("Available here, the best first: {}.", fmt::join(names, ", "))};
}

}  // namespace keyseat::nn::kernels
