#include "tools/keyseat/run_setup.h"

#include "base/launch_environment.h"
#include "checkpoint/checkpoint_folder.h"
#include "config/hf_config.h"
#include "keyseat/memory.h"
#include "nn/kernels/targets.h"
#include "plugin/files/find.h"
#include "runtime/loggers.h"
#include "tools/keyseat/load_config.h"

namespace keyseat::tool {

namespace {

// The files a run writes; either of the first two tells that a folder holds a run.
constexpr const char* kRunFiles[] = {"metrics.jsonl", "config.toml", "final.safetensors",
                                     "report.html"};

// Only this process needs it, so that it is no member of RunSettings.
std::string cpu_target(const RunConfig& config) {
  for (const ConfigSection& section : config.sections) {
    if (section.table == "run") return section.options.get_string("cpu_target");
  }
  return "best";
}

}  // namespace

RunConfig resolve_or_throw(const ConfigArguments& arguments, ConfigPlugins& plugins, ConfigUse use,
                           std::vector<GivenBlock> blocks, std::vector<std::string> first_sets,
                           int64_t world) {
  ConfigArguments all = arguments;
  all.sets.insert(all.sets.begin(), first_sets.begin(), first_sets.end());
  RunConfig config = load_config(all, plugins, use, std::move(blocks), world);
  install_caching_allocator(static_cast<size_t>(config.memory.cache_bytes));
  if (auto problem = set_log_level(config.log.level, launch_environment().rank))
    throw Error(*problem);
  if (auto problem = nn::kernels::use_target(cpu_target(config))) throw Error(*problem);
  return config;
}

bool is_first_rank() { return launch_environment().rank == 0; }

std::vector<GivenBlock> blocks_of_hf_file(const std::string& file,
                                          const ConfigArguments& arguments) {
  std::ifstream stream(file);
  if (!stream) {
    throw Error(Problem{Code::kR7File,
                        {file, 0, 0},
                        "cannot read the file",
                        std::strerror(errno),
                        "Give a folder with a Hugging Face config.json."});
  }
  const std::string text((std::istreambuf_iterator<char>(stream)), {});
  std::vector<PluginFolder> given;
  for (const std::string& folder : arguments.plugin_dirs) given.push_back({folder, "--plugin-dir"});
  PluginSearch search = make_plugin_search(given);
  search.allow_abi_mismatch = arguments.allow_abi_mismatch;
  Registry registry(std::move(search));
  Problems problems;
  std::vector<HfPlugin> block_plugins;
  for (const FoundFile& found : find_all(registry.search(), problems)) {
    if (found.id.kind != "block") continue;
    if (const auto plugin = registry.load("block", found.id.name, problems)) {
      block_plugins.push_back({found.id.name, plugin->hf_models()});
    }
  }
  HfBlocks blocks = blocks_from_hf(text, file, block_plugins);
  problems.insert(problems.end(), blocks.problems.begin(), blocks.problems.end());
  if (!problems.empty()) throw Error(std::move(problems));
  return std::move(blocks.blocks);
}

bool has_checkpoint(const RunConfig& config) {
  return !checkpoint::CheckpointFolder(config.checkpoint.dir).newest().empty();
}

void prepare_run_dir(const RunConfig& config, UsedRunDir used) {
  namespace fs = std::filesystem;
  const fs::path folder = config.run.dir;
  const bool holds_run = fs::exists(folder / kRunFiles[0]) || fs::exists(folder / kRunFiles[1]);
  if (used == UsedRunDir::kRefuse && (holds_run || has_checkpoint(config))) {
    throw Error(Problem{
        Code::kR7File,
        {holds_run ? folder.string() : config.checkpoint.dir, 0, 0},
        holds_run ? "run.dir holds a run already" : "checkpoint.dir holds checkpoints already",
        "",
        "Pass --resume to go on with it, --overwrite to replace it, or give "
        "another run.dir."});
  }
  std::error_code error;
  if (used == UsedRunDir::kOverwrite) {
    for (const char* file : kRunFiles) fs::remove(folder / file, error);
    checkpoint::CheckpointFolder(config.checkpoint.dir).remove_all();
  }
  fs::create_directories(folder, error);
  if (error) {
    throw Error(Problem{
        Code::kR7File, {folder.string(), 0, 0}, "cannot create run.dir", error.message(), ""});
  }
}

}  // namespace keyseat::tool
