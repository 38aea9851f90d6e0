#include "train/check_dispatcher.h"

namespace keyseat::train {

Problems check_dispatcher(const Chain& chain, const Dispatcher& dispatcher, const Mesh& mesh,
                          const SourcePosition& where) {
  std::set<std::array<int64_t, 3>> asked;
  Problems problems;
  for (const ChainUnit& unit : chain.units()) {
    const UnitSpec& spec = unit.unit->spec();
    for (const ParamSpec& param : spec.params) {
      if (param.domain != ParamDomain::kExpert) continue;
      const DispatcherFacts facts{param.shape[0], spec.top_k, param.shape[2], spec.capacity_pad};
      if (asked.insert({facts.experts, facts.top_k, facts.hidden}).second) {
        for (Problem& problem : dispatcher.check_layout(facts, mesh)) {
          if (problem.where.file.empty()) problem.where = where;
          problems.push_back(std::move(problem));
        }
      }
      break;  // the first expert matrix reads the hidden width
    }
  }
  return problems;
}

}  // namespace keyseat::train
