// One table of the tree against one schema: the place where unknown, missing, mistyped and
// out-of-range keys are found.
#pragma once

#include <string>
#include <vector>

#include "config/syntax/merge.h"
#include "config/syntax/tree.h"
#include "keyseat/options.h"

namespace keyseat {

struct TableRules {
  const OptionSchema& schema;
  std::string label;                        // "[run]", "[data.options] of plugin data/mock"
  std::vector<std::string> subtables = {};  // keys that others bind
  bool missing_allowed = false;             // required options may be absent
  // Where a key that is unknown here may belong: the options of the plugin that the table names.
  const OptionSchema* options_below = nullptr;
  std::string options_label = {};  // "[data.options]"
};

// `table` may be null (nothing given): then `where` is the position of what is missing. Values are
// of the declared type and paths absolute afterwards; a given value that equals the default is a
// default with a position. Bad values are left at their default.
Options bind_table(const Node* table, const SourcePosition& where, const TableRules& rules,
                   Problems& problems, Notes& notes);

// "an integer", "a table": what a node is, for messages.
std::string node_kind_text(const Node& node);

}  // namespace keyseat
