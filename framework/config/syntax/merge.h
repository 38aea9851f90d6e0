// How one layer of a configuration lies over another.
//
// Layers from the bottom: bases, the file, overlays in the order given, --set. The rules:
// - tables merge key by key; a value, a list or another kind of thing replaces what was there;
// - lists of tables whose elements all have a `name` ([[model.blocks]]) merge element by element:
//   the same name merges, a new one is appended; any other list is replaced as a whole;
// - options belong to the plugin they were given for: where a layer names another `plugin`, the
//   options of the layers below are left out (and a note says so). So are those of [eval.options],
//   which lie over the options of the data plugin.
#pragma once

#include <string>
#include <vector>

#include "config/syntax/tree.h"

namespace keyseat {

// What a user should know though nothing is wrong; shown as warnings.
using Notes = std::vector<std::string>;

// Lays `over` on `base`. `path` names the table for notes: "" at the top.
void merge_over(Node& base, Node over, const std::string& path, Notes& notes);

// Removes from `root`, the whole tree, the options that lie over those of a plugin in another table
// where `over` names another plugin there. merge_over() of whole trees does this by itself.
void leave_out_overlaid(Node& root, const Node& over, Notes& notes);

}  // namespace keyseat
