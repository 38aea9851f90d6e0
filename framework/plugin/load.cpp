#include "plugin/load.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <spdlog/logger.h>

#include <boost/dll/shared_library.hpp>
#include <map>
#include <mutex>

#include "base/sha256.h"
#include "plugin/files/find.h"
#include "plugin/linker_error.h"
#include "plugin/load_guard.h"
#include "runtime/loggers.h"

namespace keyseat {
namespace {

constexpr char kEntry[] = "keyseat_plugin_entry";

Problem entry_failed(const InspectedPlugin& plugin, const std::string& how) {
  return Problem{Code::kP6EntryFailed,
                 {},
                 fmt::format("the entry of {} {}", plugin.id.text(), how),
                 "",
                 "File: " + plugin.file.string()};
}

// Runs the entry. The pointer type lets exceptions pass, although the SDK's entry is noexcept: an
// entry that was not made with KEYSEAT_PLUGIN may throw.
std::optional<Problem> run_entry(const InspectedPlugin& plugin,
                                 const boost::dll::shared_library& library, PluginTable& table) {
  using Entry = EntryStatus(PluginTable*);
  if (!library.has(kEntry)) return entry_failed(plugin, fmt::format("({}) is missing", kEntry));
  try {
    EntryStatus status = library.get<Entry>(kEntry)(&table);
    status.text[sizeof(status.text) - 1] = '\0';
    if (!status.ok) {
      const bool silent = status.text[0] == '\0';
      return entry_failed(plugin, silent ? std::string("failed and gave no reason")
                                         : fmt::format("failed: {}", status.text));
    }
  } catch (...) {
    return entry_failed(plugin, "threw: " + current_exception_text());
  }
  if (table.options == nullptr || table.validate == nullptr || table.hf_models == nullptr ||
      table.create == nullptr) {
    return entry_failed(plugin, "left a function of its table empty");
  }
  return std::nullopt;
}

Result<std::shared_ptr<const LoadedPlugin>> load_now(const InspectedPlugin& plugin) {
  const auto log = logger("loader");
  // Those that came with the programme are summed up later, by ConfigPlugins::log_loaded().
  const bool own = is_in_default_folder(plugin.file);
  const std::string loading =
      fmt::format("loading {} from {}", plugin.id.text(), plugin.file.string());
  log->log(own ? spdlog::level::debug : spdlog::level::info, "{}", loading);
  const auto library = std::make_shared<boost::dll::shared_library>();
  boost::dll::fs::error_code error;
  using boost::dll::load_mode::rtld_local;
  using boost::dll::load_mode::rtld_now;
  try {
    const LoadGuard guard("keyseat: the process ended while " + loading + "\n");
    library->load(plugin.file, rtld_now | rtld_local, error);
  } catch (...) {
    // It came through the linker, which cannot be used behind it.
    throw Error(Problem{Code::kP4Unloadable,
                        {},
                        fmt::format("{} ended the process that loaded it: an initialiser threw: {}",
                                    plugin.id.text(), current_exception_text()),
                        "",
                        "File: " + plugin.file.string()});
  }
  if (error) {
    const char* const text = dlerror();
    return linker_problem(plugin.id.text(), plugin.file, text == nullptr ? "" : text);
  }
  const auto loaded = std::make_shared<LoadedPlugin>();
  if (auto problem = run_entry(plugin, *library, loaded->table)) return *problem;
  const Result<std::string> digest = sha256_hex_of_file(plugin.file);
  if (!digest) return digest.problem();
  loaded->kind = plugin.id.kind;
  loaded->name = plugin.id.name;
  loaded->file = plugin.file;
  loaded->digest = digest.value();
  loaded->manifest = plugin.manifest;
  loaded->library = library;
  for (const std::string& warning : plugin.warnings) {
    log->warn("{}: {}", plugin.id.text(), warning);
  }
  log->debug("{} {}, sha256 {}, {}", loaded->id(), loaded->manifest.plugin_version, loaded->digest,
             loaded->file.string());
  return std::shared_ptr<const LoadedPlugin>(loaded);
}

struct LoadedFiles {
  std::mutex mutex;
  std::map<std::string, Result<std::shared_ptr<const LoadedPlugin>>> by_file;
};

// Leaked on purpose: a library is never unloaded, since autograd graphs, type-erased objects and
// exceptions may still point into its code when static objects are destroyed.
LoadedFiles& loaded_files() {
  static auto* const all = new LoadedFiles;
  return *all;
}

}  // namespace

Result<std::shared_ptr<const LoadedPlugin>> load_library(const InspectedPlugin& plugin) {
  LoadedFiles& all = loaded_files();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto known = all.by_file.find(plugin.file.string());
  if (known != all.by_file.end()) return known->second;
  return all.by_file.emplace(plugin.file.string(), load_now(plugin)).first->second;
}

std::string current_exception_text() {
  try {
    throw;
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

}  // namespace keyseat
