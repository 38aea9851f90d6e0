#include "plugin/files/find.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <set>

#include "keyseat/suggest.h"

namespace keyseat {
namespace {

namespace fs = std::filesystem;

// The file this code was linked into: libkeyseat.so, or a programme that links keyseat_base.
fs::path own_file() {
  Dl_info info;
  void* extra = nullptr;
  const void* here = reinterpret_cast<const void*>(&own_file);
  std::error_code error;
  if (dladdr1(here, &info, &extra, RTLD_DL_LINKMAP) == 0 || extra == nullptr) return {};
  const char* const name = static_cast<const link_map*>(extra)->l_name;
  // The programme itself has an empty name in the linker's list.
  const fs::path file =
      name == nullptr || *name == '\0' ? fs::path("/proc/self/exe") : fs::path(name);
  fs::path real = fs::canonical(file, error);
  return error ? fs::path() : real;
}

std::string folders_text(const PluginSearch& search) {
  if (search.folders.empty()) return "no folder (there is no folder plugins beside the programme)";
  std::string text;
  for (const PluginFolder& folder : search.folders) {
    if (!text.empty()) text += ", ";
    text += folder.path.string();
    if (folder.origin != "default") text += " (" + folder.origin + ")";
  }
  return text;
}

Problem not_found(const PluginSearch& search, const PluginId& id,
                  const std::vector<FoundFile>& files) {
  const auto& kinds = plugin_kinds();
  if (std::find(kinds.begin(), kinds.end(), id.kind) == kinds.end()) {
    std::string remedy = did_you_mean(id.kind, kinds);
    if (!remedy.empty()) remedy += ' ';
    return Problem{Code::kP1NotFound,
                   {},
                   fmt::format("no plugin {}: there is no kind \"{}\"", id.text(), id.kind),
                   "",
                   fmt::format("{}Kinds: {}.", remedy, fmt::join(kinds, ", "))};
  }
  std::set<std::string> names;
  for (const FoundFile& file : files) {
    if (file.id.kind == id.kind) names.insert(file.id.name);
  }
  const std::string guess = nearest(id.name, {names.begin(), names.end()});
  return Problem{
      Code::kP1NotFound,
      {},
      fmt::format("no plugin {}", id.text()),
      "",
      fmt::format(
          "{}Looked in: {}. Available: {}.", guess.empty() ? "" : "Did you mean " + guess + "? ",
          folders_text(search),
          names.empty() ? "no plugin of this kind" : fmt::format("{}", fmt::join(names, ", ")))};
}

}  // namespace

std::vector<PluginFolder> default_plugin_folders() {
  std::error_code error;
  const fs::path folder = own_file().parent_path().parent_path() / "plugins";
  if (!folder.is_absolute() || !fs::is_directory(folder, error)) return {};
  return {{folder, "default"}};
}

bool is_in_default_folder(const fs::path& file) {
  std::error_code error;
  for (const PluginFolder& folder : default_plugin_folders()) {
    if (fs::equivalent(folder.path, file.parent_path(), error)) return true;
  }
  return false;
}

PluginSearch make_plugin_search(const std::vector<PluginFolder>& given) {
  PluginSearch search;
  for (const PluginFolder& folder : given) {
    search.folders.push_back({fs::absolute(folder.path).lexically_normal(), folder.origin});
  }
  for (PluginFolder& folder : default_plugin_folders()) search.folders.push_back(std::move(folder));
  return search;
}

Problems leave_out_missing_folders(PluginSearch& search) {
  Problems problems;
  std::set<fs::path> told;
  std::erase_if(search.folders, [&](const PluginFolder& folder) {
    std::error_code error;
    if (fs::is_directory(folder.path, error)) return false;
    if (!told.insert(folder.path).second) return true;
    const bool exists = fs::exists(folder.path, error);
    problems.push_back(
        Problem{Code::kP1NotFound,
                {},
                fmt::format("the plugin folder {} ({}) {}", folder.path.string(), folder.origin,
                            exists ? "is no folder" : "does not exist"),
                "",
                "Correct it or leave it out."});
    return true;
  });
  return problems;
}

std::vector<FoundFile> find_all(const PluginSearch& given, Problems& problems) {
  PluginSearch search = given;
  for (Problem& problem : leave_out_missing_folders(search)) problems.push_back(std::move(problem));
  std::vector<FoundFile> files;
  std::set<fs::path> seen;
  for (const PluginFolder& folder : search.folders) {
    std::error_code error;
    const fs::path real = fs::canonical(folder.path, error);
    if (error) continue;                      // it has gone this moment
    if (!seen.insert(real).second) continue;  // one folder named twice is one folder
    std::vector<FoundFile> here;
    for (fs::directory_iterator entry(real, error), end; !error && entry != end;
         entry.increment(error)) {
      const auto id = id_from_file_name(entry->path().filename().string());
      if (id) here.push_back({*id, entry->path()});
    }
    if (error) {
      problems.push_back(Problem{Code::kP1NotFound,
                                 {},
                                 fmt::format("the plugin folder {} cannot be read: {}",
                                             folder.path.string(), error.message()),
                                 "",
                                 ""});
    }
    std::sort(here.begin(), here.end(),
              [](const FoundFile& a, const FoundFile& b) { return a.file < b.file; });
    files.insert(files.end(), here.begin(), here.end());
  }
  return files;
}

Result<FoundFile> find_plugin(const PluginSearch& search, const PluginId& id) {
  Problems problems;
  const std::vector<FoundFile> files = find_all(search, problems);
  if (!problems.empty()) return problems.front();
  std::vector<FoundFile> found;
  for (const FoundFile& file : files) {
    if (file.id.text() == id.text()) found.push_back(file);
  }
  if (found.empty()) return not_found(search, id, files);
  if (found.size() == 1) return found.front();
  return Problem{Code::kP7Conflict,
                 {},
                 fmt::format("plugin {} is in two folders: {} and {}", id.text(),
                             found[0].file.string(), found[1].file.string()),
                 "Which of them is meant would depend on the order of the folders.",
                 "Remove one file or one folder."};
}

}  // namespace keyseat
