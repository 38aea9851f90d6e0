// From files to a RunConfig, in one pass that reports everything it finds.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <tuple>
#include <utility>

#include "base/option_value.h"
#include "config/bind.h"
#include "config/core_schema.h"
#include "config/defaults.h"
#include "config/given_blocks.h"
#include "config/resume_keys.h"
#include "config/settings.h"
#include "config/slots.h"
#include "config/syntax/assign.h"
#include "config/syntax/include.h"
#include "keyseat/config.h"

namespace keyseat {

SchemaSource::~SchemaSource() = default;
void SchemaSource::use_log_level(const std::string& /*level*/) {}

namespace {

class Resolver {
 public:
  Resolver(const ConfigRequest& request, SchemaSource& schemas)
      : request_(request), schemas_(schemas), slots_(schemas, result_) {}

  ResolvedConfig resolve() {
    // Without all files read, everything they hold would be reported as missing.
    if (!read_layers()) return std::move(result_);
    const OptionSchema none;
    bind_table(&root_, {},
               {.schema = none, .label = "the top level", .subtables = core_children("")},
               result_.problems, result_.notes);
    if (const Node* level = below(table("log"), "level"); level != nullptr)
      schemas_.use_log_level(table("log")->string_at("level"));
    bind_plugin_folders();
    bind_run();
    bind_model();
    bind_slots();
    bind_rest();
    auto& problems = result_.problems;
    std::stable_sort(problems.begin(), problems.end(), [](const Problem& a, const Problem& b) {
      return std::tie(a.where.file, a.where.line, a.where.column) <
             std::tie(b.where.file, b.where.line, b.where.column);
    });
    return std::move(result_);
  }

 private:
  RunConfig& config() { return result_.config; }
  const Node* table(const std::string& name) const { return root_.find(name); }

  // Where a table that is not given is missing: the file as a whole.
  SourcePosition file() const { return {request_.file, 0, 0}; }

  bool read_layers() {
    root_ = blocks_tree(request_.blocks);
    root_.origin.where = file();
    bool readable = true;
    auto add = [&](const std::string& path, const std::string& layer) {
      auto tree = read_config_file(path, layer, result_.problems, result_.notes);
      readable = readable && tree.has_value();
      if (tree) merge_over(root_, std::move(*tree), "", result_.notes);
    };
    if (!request_.file.empty()) add(request_.file, "");
    for (const std::string& overlay : request_.overlays) add(overlay, "overlay ");
    // Whatever a base lacks, or is, what it should have given would be missing. A key of it that
    // belongs elsewhere (C2) takes nothing away.
    const bool unread_base =
        std::any_of(result_.problems.begin(), result_.problems.end(),
                    [](const Problem& problem) { return problem.code != Code::kC2Unknown; });
    if (!readable || unread_base) return false;
    apply_sets(root_, request_.sets, result_.problems, result_.notes);
    return true;
  }

  // A table of the core without a plugin. Returns its options and adds its section.
  ConfigSection& bind_core(const std::string& name, const Node* node) {
    const CoreTable& core = *find_core_table(name);
    std::vector<std::string> below = core_children(name);
    if (name == "eval") below.push_back("options");
    const SourcePosition where = node != nullptr ? node->origin.where : file();
    Options options = bind_table(node, where,
                                 {.schema = core.options,
                                  .label = "[" + name + "]",
                                  .subtables = std::move(below),
                                  .missing_allowed = request_.use == ConfigUse::kModel},
                                 result_.problems, result_.notes);
    config().sections.push_back({name, false, core.options, std::move(options), {}});
    return config().sections.back();
  }

  static const Node* below(const Node* node, const std::string& name) {
    return node != nullptr && node->is_table() ? node->find(name) : nullptr;
  }

  void bind_plugin_folders() {
    const Node* node = table("plugins");
    ConfigSection& section = bind_core("plugins", node);
    PluginFolders& folders = config().plugins;
    for (const std::string& path : request_.plugin_dirs) {
      folders.search.push_back({path, "--plugin-dir"});
    }
    const std::string origin = section.options.entries().at("search").origin;
    for (const std::string& path : section.options.get_string_list("search")) {
      folders.search.push_back({path, origin});
    }
    folders.where = node != nullptr ? node->origin.where : file();
    OptionSchema pins;
    Options values;
    const Node* pin = below(node, "pin");
    if (pin != nullptr && pin->is_table()) {
      for (const Member& member : pin->members) {
        pins.push_back(Option(member.name, OptionType::kString));
      }
    }
    values = bind_table(pin, folders.where, {.schema = pins, .label = "[plugins.pin]"},
                        result_.problems, result_.notes);
    for (const OptionSpec& spec : pins) {
      if (values.has(spec.name)) folders.pins[spec.name] = values.get_string(spec.name);
    }
    config().sections.push_back({"plugins.pin", false, std::move(pins), std::move(values), {}});
    for (Problem& problem : schemas_.open(folders)) {
      if (problem.where.file.empty()) problem.where = folders.where;
      result_.problems.push_back(std::move(problem));
    }
  }

  void bind_run() {
    ConfigSection& section = bind_core("run", table("run"));
    read_run(section.options, request_, config().run, section, result_.problems);
  }

  void bind_model() {
    const Node* node = table("model");
    const size_t index = config().sections.size();
    bind_core("model", node);
    const Node* blocks = below(node, "blocks");
    const CoreTable& core = *find_core_table("model.blocks");
    std::vector<SourcePosition> names_at;
    if (node != nullptr && !node->is_table()) {
      // Reported with the table.
    } else if (blocks == nullptr || blocks->kind != Node::Kind::kList || blocks->items.empty()) {
      const bool wrong = blocks != nullptr && blocks->kind != Node::Kind::kList;
      result_.problems.push_back(
          {Code::kC3Value,
           blocks != nullptr ? blocks->origin.where
                             : (node != nullptr ? node->origin.where : file()),
           wrong ? fmt::format("model.blocks must be a list of tables, is {}",
                               node_kind_text(*blocks))
                 : "the model has no blocks",
           "", "Write [[model.blocks]], or name a model file in [model] base"});
    } else {
      for (const Node& item : blocks->items) {
        PluginChoice block;
        slots_.bind("block", core, &item, item.origin.where, "", false, block);
        block.instance = item.is_table() ? item.string_at("name") : "";
        const Node* name = below(&item, "name");
        names_at.push_back(name != nullptr ? name->origin.where : item.origin.where);
        config().model.blocks.push_back(std::move(block));
      }
    }
    check_block_names(config().model.blocks, names_at, result_.problems);
    read_model(config().sections[index].options, node, config().model, result_.problems);
  }

  void bind_slot(const std::string& kind, PluginChoice& choice, const std::string& fallback) {
    const bool may_be_absent = request_.use == ConfigUse::kModel;
    slots_.bind(kind, *find_core_table(kind), table(kind), file(), fallback, may_be_absent, choice);
  }

  void bind_slots() {
    bind_slot("strategy", config().strategy, default_plugin("strategy"));
    bind_slot("dispatcher", config().dispatcher, default_plugin("dispatcher"));
    bind_slot("recompute", config().recompute, default_plugin("recompute"));
    const size_t comm = config().sections.size();
    bind_slot("comm", config().comm,
              default_comm(config().run.device, request_.world, request_.hosts));
    config().sections[comm].remarks["plugin"] = fmt::format(
        "for device {}, {} rank(s), {} host(s)",
        config().run.device == DeviceKind::kCuda ? "cuda" : "cpu", request_.world, request_.hosts);
    read_comm(config().sections[comm].options, config());
    bind_slot("data", config().data, "");
    const size_t optimizer = config().sections.size();
    bind_slot("optimizer", config().optimizer, default_plugin("optimizer"));
    config().clip_norm = config().sections[optimizer].options.get_float("clip_norm");
  }

  void bind_rest() {
    ConfigSection& schedule =
        bind_core("optimizer.schedule", below(table("optimizer"), "schedule"));
    read_schedule(schedule.options, config().run.steps, config().schedule, result_.problems);
    schedule.remarks["total_steps"] = "run.steps";
    bind_factors("optimizer.lr_factors", "lr_factors", &BlockFactors::lr);
    bind_factors("optimizer.decay_factors", "decay_factors", &BlockFactors::weight_decay);

    const Node* loss = table("loss");
    bind_core("loss", loss);
    const Options aux = bind_core("loss.aux", below(loss, "aux")).options;
    config().loss.aux_weight = aux.get_float("weight");
    config().loss.aux_scope =
        aux.get_string("scope") == "layer" ? AuxScope::kLayer : AuxScope::kPooled;
    config().loss.z_weight = bind_core("loss.z", below(loss, "z")).options.get_float("weight");

    const Node* eval = table("eval");
    const Options eval_options = bind_core("eval", eval).options;
    config().eval.every = eval_options.get_int("every");
    config().eval.max_new_tokens = eval_options.get_int("max_new_tokens");
    config().eval.samples = eval_options.get_int("samples");
    read_measures(eval_options, config().eval, result_.problems);
    slots_.bind_eval(config().data, table("data"), eval, config().eval.data);
    ConfigSection& checkpoint = bind_core("checkpoint", table("checkpoint"));
    read_checkpoint(checkpoint.options, config().run, config().checkpoint, checkpoint);
    const Options checkpoint_options = checkpoint.options;

    config().memory.cache_bytes = bind_core("memory", table("memory")).options.get_int("cache");
    bind_core("graphs", table("graphs"));
    const Options log = bind_core("log", table("log")).options;
    config().log.level = log.get_string("level");
    config().log.every = log.get_int("every");
    config().log.samples = log.get_bool("samples");
    for (Problem& problem : may_differ_problems(config(), checkpoint_options))
      result_.problems.push_back(std::move(problem));
  }

  // A table with one key per block.
  void bind_factors(const std::string& name, const std::string& key, double BlockFactors::*factor) {
    OptionSchema schema;
    for (const PluginChoice& block : config().model.blocks) {
      if (block.instance.empty()) continue;  // reported as missing
      schema.push_back(Option(block.instance, OptionType::kFloat)
                           .defaults_to(1.0)
                           .range(0, 1000)
                           .doc("A block."));
    }
    Options options =
        bind_table(below(table("optimizer"), key), file(),
                   {.schema = schema, .label = "[" + name + "]"}, result_.problems, result_.notes);
    for (const OptionSpec& spec : schema)
      config().factors[spec.name].*factor = options.get_float(spec.name);
    config().sections.push_back({name, false, std::move(schema), std::move(options), {}});
  }

  const ConfigRequest& request_;
  SchemaSource& schemas_;
  ResolvedConfig result_;
  SlotBinder slots_;
  Node root_;
};

}  // namespace

ResolvedConfig resolve_config(const ConfigRequest& request, SchemaSource& schemas) {
  return Resolver(request, schemas).resolve();
}

}  // namespace keyseat
