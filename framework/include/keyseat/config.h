// The configuration of a run: TOML files, overlays and --set, checked against the core's and the
// plugins' options, with every problem at once and the origin of every value.
//
//   ResolvedConfig resolved = resolve_config({.file = "a.toml", .sets = {"run.steps=10"}},
//   schemas); if (!resolved.ok()) print(problems_text(resolved.problems)); else
//   train(resolved.config);
//
// Layers from the bottom: defaults, `base` files, the file, overlays in order, --set. Tables merge
// key by key, [[model.blocks]] by `name`, everything else is replaced; a layer that names another
// plugin leaves out the options given to the one before. Relative paths start at the folder of the
// file that gives them (at the working folder for --set and defaults) and become absolute.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "keyseat/export.h"
#include "keyseat/options.h"
#include "keyseat/status.h"

namespace keyseat {

// What a plugin says about its options.
struct PluginSchema {
  OptionSchema options;
  std::function<Problems(const Options&)> validate;  // rules between options; may be empty
};

struct PluginFolders {
  struct Folder {
    std::string path;    // absolute
    std::string origin;  // "--plugin-dir", "a.toml:3"
  };
  std::vector<Folder> search;               // in order
  std::map<std::string, std::string> pins;  // "kind/name" -> SHA-256 in hexadecimal
  SourcePosition where;                     // of [plugins]
};

// Where schemas come from: the plugin registry, or a table in tests.
class KEYSEAT_API SchemaSource {
 public:
  virtual ~SchemaSource();
  // (optional) log.level as it was given, checked by nobody yet; called first, so that it applies
  // from the start.
  virtual void use_log_level(const std::string& level);
  // Called once, before the first find().
  virtual Problems open(const PluginFolders& folders) = 0;
  // Nothing and at least one problem (family P) where the plugin cannot be used. The pointer lives
  // as long as the source. Problems without a position get that of the `plugin` key.
  virtual const PluginSchema* find(const std::string& kind, const std::string& name,
                                   Problems& problems) = 0;
};

// One plugin that the configuration names.
struct PluginChoice {
  std::string kind;
  std::string name;      // empty: none chosen (only where the caller does not need one)
  std::string instance;  // a block's name in the chain; else the kind
  Options options;
  std::string origin;    // of the name: "default", "a.toml:12", "overlay b.toml:3", "--set"
  SourcePosition where;  // of the name
};

enum class DeviceKind { kCpu, kCuda };
enum class Precision { kFp32, kBf16 };

struct RunSettings {
  std::string name;
  std::string dir;  // absolute
  int64_t steps = 0;
  int64_t seed = 0;
  DeviceKind device = DeviceKind::kCpu;
  Precision precision = Precision::kFp32;  // "auto" is resolved
  std::string precision_reason;            // why "auto" became what it is; empty where it was given
  int64_t ranks_per_node = 0;              // 0: as launched
  double timeout_seconds = 0;
  int64_t threads = 0;  // per rank; 0: cores / ranks of this host
};

struct ModelSettings {
  std::vector<PluginChoice> blocks;  // in chain order
  std::vector<std::string> freeze;   // names of blocks
  std::string init;                  // folder of Hugging Face weights, absolute; empty: random
  bool allow_missing = false, allow_unexpected = false, allow_shape = false;  // init_allow
};

enum class ScheduleKind { kConstant, kCosine, kWsd };

// The learning rate is the optimizer's `lr` times a factor: linear from 0 to 1 over warmup_steps,
// then constant, or a cosine to min_ratio at total_steps, or (wsd) constant and linear to min_ratio
// over the last decay_steps.
struct ScheduleSettings {
  ScheduleKind kind = ScheduleKind::kConstant;
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;
  int64_t decay_steps = 0;  // of wsd; decay_ratio is resolved into it
  double min_ratio = 0;
};

enum class AuxScope { kPooled, kLayer };

struct LossSettings {
  double aux_weight = 0;
  AuxScope aux_scope = AuxScope::kPooled;
  double z_weight = 0;
};

struct EvalSettings {
  PluginChoice data;  // the training data's plugin and options, overlaid with [eval.options]
  int64_t every = 0;  // optimizer steps between evaluations; 0: never during training
  bool loss = false, accuracy = false;  // what is measured
  int64_t max_new_tokens = 0;
  int64_t samples = 0;  // 0: all
};

// Factors of a block on the optimizer's learning rate and weight decay.
struct BlockFactors {
  double lr = 1, weight_decay = 1;
};

struct CheckpointSettings {
  std::string dir;                      // absolute
  int64_t every = 0;                    // optimizer steps; 0: only where a signal stops the run
  int64_t keep = 0;                     // complete ones that stay; 0: all
  std::vector<std::string> may_differ;  // keys, or tables, that may differ on --resume
};

struct MemorySettings {
  int64_t cache_bytes = 0;  // free CPU memory kept for reuse
};

struct LogSettings {
  std::string level;     // spdlog's names
  int64_t every = 0;     // optimizer steps between progress lines
  bool samples = false;  // metrics.jsonl names the samples of every step
};

// One printed table of the resolved configuration.
struct ConfigSection {
  std::string table;          // "run", "model.blocks", "model.blocks.options"
  bool list_element = false;  // begins an element of a list of tables
  OptionSchema schema;
  Options options;
  std::map<std::string, std::string> remarks;  // behind the origin, by key
};

struct RunConfig {
  RunSettings run;
  ModelSettings model;
  PluginChoice strategy, dispatcher, recompute, comm, data, optimizer;
  bool check_collectives = false;  // comm.check
  double clip_norm = 0;            // 0: no clipping
  ScheduleSettings schedule;
  std::map<std::string, BlockFactors> factors;  // by block; all blocks
  LossSettings loss;
  EvalSettings eval;
  CheckpointSettings checkpoint;
  PluginFolders plugins;
  MemorySettings memory;
  LogSettings log;
  std::vector<ConfigSection>
      sections;  // all of the above as options, in the order they are printed
};

// Every value with its origin. The TOML can be loaded again and gives the same configuration.
KEYSEAT_API std::string config_toml(const RunConfig& config);
KEYSEAT_API std::string config_json(const RunConfig& config);

// A block that a program, not a file, puts into the model (parity: read from a config.json).
struct GivenBlock {
  std::string name, plugin;
  std::map<std::string, OptionValue> options;
  SourcePosition where;
};

enum class ConfigUse {
  kTrain,  // data and run.steps are required
  kModel,  // only the model is needed
};

struct ConfigRequest {
  std::string file = {};  // empty: none
  std::vector<std::string> overlays = {};
  std::vector<std::string> sets = {};         // "a.b=c"
  std::vector<GivenBlock> blocks = {};        // the lowest layer
  std::vector<std::string> plugin_dirs = {};  // --plugin-dir, searched before [plugins] search
  ConfigUse use = ConfigUse::kTrain;
  int64_t world = 1, hosts = 1;  // ranks and machines, from the launcher's environment
};

struct ResolvedConfig {
  RunConfig config;  // meaningful only if ok()
  Problems problems;
  std::vector<std::string> notes;  // warnings: options left out, old names
  bool ok() const { return problems.empty(); }
};

// Never throws for what a file or the command line holds.
KEYSEAT_API ResolvedConfig resolve_config(const ConfigRequest& request, SchemaSource& schemas);

// The core's own keys, for `describe core` and the option reference.
struct CoreTable {
  std::string name;  // "run", "model.blocks", "optimizer.schedule"
  std::string doc;
  OptionSchema options;
};
KEYSEAT_API const std::vector<CoreTable>& core_tables();

// The communicator where the configuration names none.
KEYSEAT_API std::string default_comm(DeviceKind device, int64_t world, int64_t hosts);

}  // namespace keyseat
