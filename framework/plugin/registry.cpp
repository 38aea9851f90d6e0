#include "keyseat/registry.h"

#include <fmt/format.h>

#include "plugin/files/find.h"
#include "plugin/files/inspect.h"
#include "plugin/load.h"
#include "runtime/loggers.h"

namespace keyseat {
namespace {

// Runs a function of a plugin; whatever it throws becomes an Error that names the plugin.
template <typename Function>
auto call(const LoadedPlugin& plugin, const char* what, const Function& function) {
  try {
    return function();
  } catch (const Error&) {
    throw;
  } catch (...) {
    throw Error(Problem{Code::kP6EntryFailed,
                        {},
                        fmt::format("{} {}: {}", plugin.id(), what, current_exception_text()),
                        "",
                        "File: " + plugin.file.string()});
  }
}

// Members are destroyed in reverse order: the instance before its library.
struct HeldInstance {
  std::shared_ptr<const void> library;
  std::shared_ptr<void> instance;
};

}  // namespace

OptionSchema LoadedPlugin::options() const {
  return call(*this, "could not declare its options", [&] { return table.options(); });
}

Problems LoadedPlugin::validate(const Options& options) const {
  return call(*this, "could not validate its options", [&] { return table.validate(options); });
}

std::vector<HfModel> LoadedPlugin::hf_models() const {
  return call(*this, "could not name its model types", [&] { return table.hf_models(); });
}

std::shared_ptr<void> LoadedPlugin::create(const Options& options, PluginHost host) const {
  if (host.log == nullptr) host.log = logger(id());
  if (host.instance.empty()) host.instance = kind;
  auto held = std::make_shared<HeldInstance>();
  held->library = library;
  held->instance = call(*this, "could not be created", [&] { return table.create(options, host); });
  if (held->instance == nullptr) {
    throw Error(Problem{Code::kP6EntryFailed, {}, id() + " created no instance", "", ""});
  }
  void* const instance = held->instance.get();
  return std::shared_ptr<void>(std::move(held), instance);
}

Registry::Registry(PluginSearch search) : search_(std::move(search)) {}

std::shared_ptr<const LoadedPlugin> Registry::load(const std::string& kind, const std::string& name,
                                                   Problems& problems) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& plugin : loaded_) {
    if (plugin->kind == kind && plugin->name == name) return plugin;
  }
  const Result<FoundFile> found = find_plugin(search_, {kind, name});
  if (!found) {
    problems.push_back(found.problem());
    return nullptr;
  }
  const InspectedPlugin inspected = inspect(found.value(), search_);
  if (!inspected.refusals.empty()) {
    problems.insert(problems.end(), inspected.refusals.begin(), inspected.refusals.end());
    return nullptr;
  }
  Result<std::shared_ptr<const LoadedPlugin>> plugin = load_library(inspected);
  if (!plugin) {
    problems.push_back(plugin.problem());
    return nullptr;
  }
  loaded_.push_back(plugin.value());
  return plugin.value();
}

std::shared_ptr<void> Registry::create_any(const std::string& kind, const std::string& name,
                                           const Options& options, PluginHost host) {
  Problems problems;
  const auto plugin = load(kind, name, problems);
  if (plugin == nullptr) throw Error(std::move(problems));
  return plugin->create(options, std::move(host));
}

std::vector<std::shared_ptr<const LoadedPlugin>> Registry::loaded() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return loaded_;
}

}  // namespace keyseat
