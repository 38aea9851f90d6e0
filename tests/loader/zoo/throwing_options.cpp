// Loads, then throws when it is asked for its options and instances.
#include <stdexcept>

#include "zoo/zoo.h"

ZOO_MANIFEST

namespace {

keyseat::OptionSchema throw_options() { throw std::runtime_error("no options today"); }
std::shared_ptr<void> throw_instance(const keyseat::Options&, const keyseat::PluginHost&) {
  throw std::runtime_error("no instance today");
}

}  // namespace

ZOO_ENTRY {
  zoo::fill(table);
  table->options = &throw_options;
  table->create = &throw_instance;
  return {};
}
