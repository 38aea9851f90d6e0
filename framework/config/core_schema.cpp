// The core's own keys, declared as plugins declare theirs.
#include "config/core_schema.h"

#include <utility>

#include "config/defaults.h"
#include "keyseat/config.h"

namespace keyseat {
namespace {

using Type = OptionType;
using Strings = std::vector<std::string>;

constexpr double kLargest = 9007199254740992.0;  // 2^53: integers up to here are exact everywhere

CoreTable run_table() {
  return {
      "run",
      "The run as a whole.",
      {Option("name", Type::kString).optional().doc("Name of the run; the file's name if unset."),
       Option("dir", Type::kPath)
           .optional()
           .doc("Folder of logs, metrics, checkpoints and the report; runs/NAME in the working "
                "folder if unset."),
       Option("steps", Type::kInt)
           .required()
           .range(1, kLargest)
           .unit("optimizer steps")
           .doc("Length of the run."),
       Option("seed", Type::kInt)
           .defaults_to(int64_t{1234})
           .range(0, kLargest)
           .doc("Seed of initial values, sample order and everything else that is random."),
       Option("device", Type::kEnum)
           .choices({"cpu", "cuda"})
           .defaults_to("cpu")
           .doc("Where tensors live."),
       Option("precision", Type::kEnum)
           .choices({"auto", "fp32", "bf16"})
           .defaults_to("auto")
           .doc("Type of weights and activations in forward and backward; masters, moments and "
                "reductions are fp32. auto: bf16 on GPUs and on CPUs with native bf16 GEMM."),
       Option("ranks_per_node", Type::kInt)
           .optional()
           .range(1, kLargest)
           .unit("ranks")
           .doc("Ranks that count as one node; as launched if unset. Smaller values let one "
                "machine stand for several nodes."),
       Option("timeout_s", Type::kFloat)
           .defaults_to(300.0)
           .range(0.1, 1e6)
           .unit("seconds")
           .level(OptionLevel::kTuning)
           .doc("A rank without a heartbeat for this long ends the job."),
       Option("threads", Type::kInt)
           .optional()
           .range(1, 1024)
           .unit("threads")
           .level(OptionLevel::kTuning)
           .scope(OptionScope::kPerRank)
           .doc("Compute threads of each rank; the host's cores divided by its ranks if "
                "unset."),
       Option("cpu_target", Type::kString)
           .defaults_to("best")
           .level(OptionLevel::kDeveloper)
           .scope(OptionScope::kPerRank)
           .doc("Instruction set of Keyseat's own kernels, such as \"AVX2\" or \"SSE4\"; best: the "
                "best that this CPU has. Results differ by rounding. LibTorch's GEMMs choose for "
                "themselves.")}};
}

CoreTable model_table() {
  return {"model",
          "The model: an ordered list of blocks.",
          {Option("freeze", Type::kStringList)
               .defaults_to(Strings())
               .doc("Names of blocks whose parameters are not trained."),
           Option("init", Type::kPath)
               .optional()
               .doc("Folder with Hugging Face weights (*.safetensors) to start from; random values "
                    "if unset."),
           Option("init_allow", Type::kStringList)
               .defaults_to(Strings())
               .choices({"missing", "unexpected", "shape"})
               .doc("Which differences between init and the model are not errors: tensors missing "
                    "in the file, unexpected in it, of another shape.")}};
}

CoreTable blocks_table() {
  return {"model.blocks",
          "One block of the model; [[model.blocks]] is repeated, in the order of the chain.",
          {Option("name", Type::kString)
               .required()
               .doc("Name of the block: prefix of its parameters, used by freeze and in reports."),
           Option("plugin", Type::kString).required().doc("The block plugin.")}};
}

// A table that chooses one plugin of the kind it is named after.
CoreTable plugin_table(const std::string& kind, const std::string& doc) {
  Option plugin("plugin", Type::kString);
  plugin.doc("The " + kind + " plugin; its options are in [" + kind + ".options].");
  const std::string name = default_plugin(kind);
  if (!name.empty()) plugin.defaults_to(name);
  if (kind == "comm") {
    plugin.optional().doc(
        "The comm plugin; its options are in [comm.options]. If unset: self for one rank, nccl on "
        "GPUs, shm for CPU ranks of one host, gloo for CPU ranks of several.");
  }
  return {kind, doc, {plugin}};
}

CoreTable comm_table() {
  CoreTable table = plugin_table("comm", "Collectives between ranks.");
  table.options.push_back(
      Option("check", Type::kBool)
          .optional()
          .level(OptionLevel::kTuning)
          .doc("Every collective is compared between its ranks: order, group, sizes, dtype. If "
               "unset: in debug builds. It costs a small message per collective."));
  return table;
}

CoreTable optimizer_table() {
  CoreTable table = plugin_table("optimizer", "How parameters are updated.");
  table.options.push_back(
      Option("clip_norm", Type::kFloat)
          .defaults_to(1.0)
          .range(0, 1e12)
          .doc("Gradients are scaled down to this global norm; 0 turns clipping off."));
  return table;
}

CoreTable schedule_table() {
  return {
      "optimizer.schedule",
      "Learning rate over the run, as a factor on the optimizer's lr.",
      {Option("kind", Type::kEnum)
           .choices({"constant", "cosine", "wsd"})
           .defaults_to("cosine")
           .doc("After warm-up: constant; a cosine down to min_ratio; or warm-up, stable, decay "
                "(linear to min_ratio at the end)."),
       Option("warmup_steps", Type::kInt)
           .defaults_to(int64_t{0})
           .range(0, kLargest)
           .unit("optimizer steps")
           .doc("Linear rise from 0."),
       Option("total_steps", Type::kInt)
           .optional()
           .range(1, kLargest)
           .unit("optimizer steps")
           .doc("Where the decay ends; run.steps if unset."),
       Option("decay_steps", Type::kInt)
           .optional()
           .range(1, kLargest)
           .unit("optimizer steps")
           .doc("wsd: length of the decay, instead of decay_ratio."),
       Option("decay_ratio", Type::kFloat)
           .defaults_to(0.1)
           .range(0, 1)
           .doc("wsd: length of the decay as a share of total_steps."),
       Option("min_ratio", Type::kFloat)
           .defaults_to(0.1)
           .range(0, 1)
           .doc("cosine and wsd: the factor at the end.")}};
}

std::vector<CoreTable> factor_tables() {
  return {
      {"optimizer.lr_factors",
       "Factors of blocks on the learning rate, by the block's name: `vision = 0.1`; 1 for blocks "
       "that are not named.",
       {}},
      {"optimizer.decay_factors",
       "Factors of blocks on the weight decay, by the block's name: `projector = 0.0`; 1 for "
       "blocks "
       "that are not named.",
       {}}};
}

std::vector<CoreTable> loss_tables() {
  return {
      {"loss", "Terms beside the cross-entropy.", {}},
      {"loss.aux",
       "Load-balancing loss of the routers.",
       {Option("weight", Type::kFloat)
            .defaults_to(0.001)
            .range(0, 1e6)
            .doc("Weight of the auxiliary loss; 0 turns it off."),
        Option("scope", Type::kEnum)
            .choices({"pooled", "layer"})
            .defaults_to("pooled")
            .doc("pooled: one value over the routing of all MoE layers, as in transformers. "
                 "layer: the mean of one value per layer.")}},
      {"loss.z",
       "Router z-loss.",
       {Option("weight", Type::kFloat)
            .defaults_to(0.0)
            .range(0, 1e6)
            .doc("Weight of the squared log-partition of the router logits; 0 turns it off.")}}};
}

CoreTable eval_table() {
  return {
      "eval",
      "Evaluation on held-out data. [eval.options] overlays [data.options].",
      {Option("every", Type::kInt)
           .defaults_to(int64_t{0})
           .range(0, kLargest)
           .unit("optimizer steps")
           .doc("Evaluate during training each time this many steps are done; 0: never."),
       Option("measure", Type::kStringList)
           .choices({"loss", "accuracy"})
           .defaults_to(Strings{"loss", "accuracy"})
           .doc("What is measured. loss: cross-entropy per supervised token. accuracy: share of "
                "the samples whose answer is decoded word for word."),
       Option("max_new_tokens", Type::kInt)
           .defaults_to(int64_t{16})
           .range(1, 1 << 20)
           .unit("tokens")
           .doc("Longest answer that is generated."),
       Option("samples", Type::kInt)
           .defaults_to(int64_t{0})
           .range(0, kLargest)
           .unit("samples")
           .doc("How many samples are evaluated, from the first on; 0: all.")}};
}

CoreTable checkpoint_table() {
  return {
      "checkpoint",
      "What a stopped run goes on from with `keyseat train --resume`.",
      {Option("every", Type::kInt)
           .defaults_to(int64_t{500})
           .range(0, kLargest)
           .unit("optimizer steps")
           .doc("Write a checkpoint each time this many steps are done, and behind the last one. "
                "0: only when SIGTERM or SIGINT stops the run."),
       Option("keep", Type::kInt)
           .defaults_to(int64_t{2})
           .range(0, kLargest)
           .unit("checkpoints")
           .doc("The newest complete checkpoints that stay; 0: all."),
       Option("dir", Type::kPath)
           .optional()
           .doc("Their folder, which all ranks see; checkpoints in run.dir if unset."),
       Option("may_differ", Type::kStringList)
           .defaults_to(Strings())
           .doc("Keys or tables (\"optimizer.options.lr\", \"data\") whose values need not be "
                "those of the checkpoint on --resume.")}};
}

std::vector<CoreTable> service_tables() {
  return {
      {"plugins",
       "Where plugins are looked for.",
       {Option("search", Type::kPathList)
            .defaults_to(Strings())
            .scope(OptionScope::kPerRank)
            .doc("Folders, searched after --plugin-dir and before the one beside the "
                 "programme.")}},
      {"plugins.pin",
       "Allow-list: SHA-256 of plugin files by \"kind/name\" (`keyseat list --pins` prints it). If "
       "it is not empty, only plugins in it are loaded.",
       {}},
      {"memory",
       "Memory of tensors on the CPU.",
       {Option("cache", Type::kSize)
            .defaults_to("4GiB")
            .range(0, kLargest)
            .unit("bytes")
            .level(OptionLevel::kTuning)
            .doc("Free memory that is kept for reuse; what exceeds it goes back to the system.")}},
      {"graphs",
       "CUDA graphs.",
       {Option("mode", Type::kEnum)
            .choices({"off"})
            .defaults_to("off")
            .doc("Only \"off\": this version captures no graphs.")}},
      {"log",
       "What is printed while running.",
       {Option("level", Type::kEnum)
            .choices({"trace", "debug", "info", "warn", "error"})
            .defaults_to("info")
            .scope(OptionScope::kPerRank)
            .doc("Least severity that is printed."),
        Option("every", Type::kInt)
            .defaults_to(int64_t{10})
            .range(1, kLargest)
            .unit("optimizer steps")
            .doc("Steps between progress lines; metrics.jsonl has every step."),
        Option("samples", Type::kBool)
            .defaults_to(false)
            .doc("metrics.jsonl names the samples of every row of the step, by their number in the "
                 "source.")}}};
}

std::vector<CoreTable> all_tables() {
  std::vector<CoreTable> tables = {
      run_table(),
      model_table(),
      blocks_table(),
      plugin_table("strategy", "Places parameters on the ranks and executes the chain of units."),
      plugin_table("dispatcher", "Moves tokens to experts and back."),
      plugin_table("recompute", "Decides what is kept for backward and what is run again."),
      comm_table(),
      plugin_table("data", "Source of packed micro-batches."),
      optimizer_table(),
      schedule_table()};
  for (auto& table : factor_tables()) tables.push_back(std::move(table));
  for (auto& table : loss_tables()) tables.push_back(std::move(table));
  tables.push_back(eval_table());
  tables.push_back(checkpoint_table());
  for (auto& table : service_tables()) tables.push_back(std::move(table));
  return tables;
}

}  // namespace

const std::vector<CoreTable>& core_tables() {
  static const std::vector<CoreTable> tables = all_tables();
  return tables;
}

const CoreTable* find_core_table(const std::string& name) {
  for (const CoreTable& table : core_tables()) {
    if (table.name == name) return &table;
  }
  return nullptr;
}

std::vector<std::string> core_children(const std::string& name) {
  const std::string prefix = name.empty() ? "" : name + ".";
  std::vector<std::string> children;
  for (const CoreTable& table : core_tables()) {
    if (!table.name.starts_with(prefix)) continue;
    const std::string rest = table.name.substr(prefix.size());
    if (rest.find('.') == std::string::npos) children.push_back(rest);
  }
  return children;
}

}  // namespace keyseat
