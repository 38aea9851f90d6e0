#include "tied_stages.h"

#include <map>
#include <set>

namespace keyseat_strategy_three_d {

using namespace keyseat;

namespace {

struct Users {
  std::set<int64_t> stages;
  ParamRef here;  // a user on this stage
};

}  // namespace

TiedStages::TiedStages(const Chain& chain, const Stages& stages,
                       const sharding::ModelLayout& layout,
                       std::vector<std::unique_ptr<sharding::Bucket>>& buckets, const Mesh& mesh,
                       Comm& comm) {
  const int64_t stage = mesh.coordinate(Axis::kPipeline);
  std::map<std::pair<int, int>, Users> users;  // by owner
  for (int unit = 0; unit < chain.size(); ++unit) {
    const std::vector<ParamRef>& owners = chain.units()[unit].owners;
    for (int param = 0; param < static_cast<int>(owners.size()); ++param) {
      Users& found = users[{owners[param].unit, owners[param].param}];
      found.stages.insert(stages.stage_of(unit));
      if (stages.stage_of(unit) == stage) found.here = {unit, param};
    }
  }
  const std::vector<int64_t> pipeline = mesh.group({Axis::kPipeline});
  for (const auto& [owner, found] : users) {
    if (found.stages.size() < 2 || !found.stages.contains(stage)) continue;
    std::vector<int64_t> ranks;
    for (int64_t user : found.stages) ranks.push_back(pipeline[static_cast<size_t>(user)]);
    const auto place = found.stages.find(stages.stage_of(owner.first));
    const int bucket = layout.places[found.here.unit][found.here.param].bucket;
    ties_.push_back(
        {buckets[bucket].get(), &comm.group(ranks), std::distance(found.stages.begin(), place)});
  }
}

void TiedStages::sum_gradients() {
  for (const Tie& tie : ties_) {
    if (tie.bucket->layout().trained)
      tie.stages->all_reduce(tie.bucket->gradient(), ReduceOp::kSum)->wait();
  }
}

void TiedStages::follow_owner() {
  for (const Tie& tie : ties_) tie.stages->broadcast(tie.bucket->source(), tie.owner)->wait();
}

}  // namespace keyseat_strategy_three_d
