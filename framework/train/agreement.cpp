#include "train/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "base/option_value.h"
#include "keyseat/version.h"

namespace keyseat::train {

std::vector<std::string> agreement_lines(const RunConfig& config, const Registry& registry) {
  std::vector<std::string> lines{fmt::format("keyseat {}", version())};
  for (const auto& plugin : registry.loaded()) {
    lines.push_back(fmt::format("plugin {} sha256 {}", plugin->id(), plugin->digest));
  }
  std::sort(lines.begin(), lines.end());  // the order of loading says nothing
  for (const ConfigSection& section : config.sections) {
    for (const OptionSpec& spec : section.schema) {
      if (spec.scope == OptionScope::kPerRank || !section.options.has(spec.name)) continue;
      lines.push_back(fmt::format("[{}] {} = {}", section.table, spec.name,
                                  value_text(section.options.entries().at(spec.name).value)));
    }
  }
  return lines;
}

int threads_of_rank(int64_t asked, int64_t local_world) {
  if (asked > 0) return static_cast<int>(asked);
  if (local_world == 1 || std::getenv("OMP_NUM_THREADS") != nullptr) return 0;
  const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  return static_cast<int>(std::max<int64_t>(1, cores / local_world));
}

}  // namespace keyseat::train
