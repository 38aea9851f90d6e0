#include "runtime/loggers.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <map>
#include <mutex>

#include "keyseat/suggest.h"

namespace keyseat {
namespace {

struct Loggers {
  std::mutex mutex;
  spdlog::sink_ptr sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  spdlog::level::level_enum level = spdlog::level::info;
  std::map<std::string, std::shared_ptr<spdlog::logger>> by_name;
};

// Leaked on purpose: threads may still log while static objects are destroyed.
Loggers& loggers() {
  static Loggers* const all = [] {
    auto* made = new Loggers;
    made->sink->set_pattern("[%H:%M:%S.%e] [%n] %^%l%$: %v");
    return made;
  }();
  return *all;
}

}  // namespace

std::shared_ptr<spdlog::logger> logger(const std::string& name) {
  Loggers& all = loggers();
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto& found = all.by_name[name];
  if (found == nullptr) {
    found = std::make_shared<spdlog::logger>(name, all.sink);
    found->set_level(all.level);
    found->flush_on(spdlog::level::trace);
  }
  return found;
}

std::optional<Problem> set_log_level(const std::string& level, int64_t rank) {
  const std::vector<std::string> names{"trace", "debug", "info", "warn", "error", "off"};
  const spdlog::level::level_enum levels[] = {spdlog::level::trace, spdlog::level::debug,
                                              spdlog::level::info,  spdlog::level::warn,
                                              spdlog::level::err,   spdlog::level::off};
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] != level) continue;
    Loggers& all = loggers();
    const std::lock_guard<std::mutex> lock(all.mutex);
    const bool quiet = rank != 0 && levels[i] == spdlog::level::info;
    all.level = quiet ? spdlog::level::warn : levels[i];
    for (auto& [name, logger] : all.by_name) logger->set_level(all.level);
    return std::nullopt;
  }
  return Problem{Code::kC3Value,
                 {},
                 fmt::format("log level \"{}\" does not exist", level),
                 "",
                 did_you_mean(level, names) + fmt::format(" Levels: {}.", fmt::join(names, ", "))};
}

}  // namespace keyseat
