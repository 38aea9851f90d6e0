#define KEYSEAT_MUTATIONS
#include "tests/dispatchers/mutants.h"

#include "framework/nn/router_limits.cpp"
#include "keyseat/mutation.h"
#include "plugins/dispatcher/allgather/allgather.cpp"
#include "plugins/dispatcher/allgather/route.cpp"
#include "plugins/dispatcher/alltoall/alltoall.cpp"
#include "plugins/dispatcher/alltoall/route.cpp"
#include "plugins/dispatcher/alltoall/tables.cpp"
#include "plugins/dispatcher/alltoall/traffic.cpp"
#include "plugins/dispatcher/hybrid_ep/hybrid_ep.cpp"
#include "plugins/dispatcher/hybrid_ep/route.cpp"
#include "plugins/dispatcher/hybrid_ep/tables.cpp"
#include "plugins/dispatcher/hybrid_ep/topology.cpp"
#include "plugins/dispatcher/hybrid_ep/traffic.cpp"

namespace keyseat::test {
namespace {

template <typename Plugin>
MakeDispatcher copy_of(const std::map<std::string, OptionValue>& options) {
  Problems problems;
  const Options resolved = resolve_options(Plugin::options(), options, "test", problems);
  if (!problems.empty()) throw Error(problems);
  return [resolved] { return std::make_shared<Plugin>(resolved, PluginHost()); };
}

}  // namespace

MakeDispatcher mutant_dispatcher(const std::string& name,
                                 const std::map<std::string, OptionValue>& options) {
  if (name == "allgather") return copy_of<keyseat_dispatcher_allgather::AllGather>(options);
  if (name == "alltoall") return copy_of<keyseat_dispatcher_alltoall::AllToAll>(options);
  return copy_of<keyseat_dispatcher_hybrid_ep::HybridEp>(options);
}

}  // namespace keyseat::test
