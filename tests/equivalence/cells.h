// What the tables of several strategies share: dispatchers, and the columns of a result.
#pragma once

#include <string>
#include <vector>

#include "tests/ranks/layout_run.h"

namespace keyseat::test {

// A dispatcher on ranks of one node, or of several that are emulated.
struct DispatcherRow {
  const char* name;
  const char* plugin;
  int64_t nodes;
};

extern const DispatcherRow kLocal;
extern const std::vector<DispatcherRow> kDispatchers;  // those of several ranks

// "| NAME | OK | 1e-07 | 2e-07 | 1e-08 | 1e-05 |"
std::string ok_row(const std::string& name, const LayoutDifference& difference);

// Router weights of zero: with equal logits the lowest experts are chosen; the others, and the
// ranks that hold them, get no row. For LayoutModel::prepare.
void choose_lowest_experts(const Chain& chain, Strategy& strategy);

}  // namespace keyseat::test
