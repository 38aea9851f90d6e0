// The tables that name a plugin: looking the plugin up and binding its options.
#pragma once

#include <string>

#include "config/bind.h"
#include "keyseat/config.h"

namespace keyseat {

class SlotBinder {
 public:
  SlotBinder(SchemaSource& schemas, ResolvedConfig& result) : schemas_(schemas), result_(result) {}

  // Binds `table` ([strategy], or one element of [[model.blocks]]) and its `options`. `core` is its
  // entry in core_tables(); `fallback` the plugin where the table names none and the schema has no
  // default; both may leave choice.name empty, which is reported unless `may_be_absent`. Appends
  // the sections of both tables and returns the index of the first.
  size_t bind(const std::string& kind, const CoreTable& core, const Node* table,
              const SourcePosition& where, const std::string& fallback, bool may_be_absent,
              PluginChoice& choice);

  // [eval.options]: `choice` becomes the data plugin with these options over those of `data`.
  void bind_eval(const PluginChoice& data, const Node* data_table, const Node* eval_table,
                 PluginChoice& choice);

 private:
  const PluginSchema* look_up(const PluginChoice& choice);
  Options bind_options(const PluginSchema& schema, const PluginChoice& choice,
                       const std::string& label, const Node* table, const SourcePosition& where);
  void validate(const PluginSchema& schema, const Options& options, const PluginChoice& choice,
                size_t problems_before);

  SchemaSource& schemas_;
  ResolvedConfig& result_;
};

}  // namespace keyseat
