#include "comm/recorded_comm.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/guarded_call.h"
#include "comm/recorded_group.h"

namespace keyseat::comm {

void CallLog::add(CallRecord& record) {
  record.ticket = ++tickets;
  record.unit = activity->unit();
  add_call(traffic, record, ranks_per_node);
  if (keep) records.push_back(record);
  if (compare && monitor != nullptr && record.group.size() > 1) monitor->report_call(record);
  activity->set_call(record);
}

RecordedComm::RecordedComm(std::shared_ptr<Comm> inner, Settings settings)
    : inner_(std::move(inner)), uncaught_(std::uncaught_exceptions()) {
  log_.monitor = settings.monitor;
  log_.activity = settings.activity;
  log_.compare = settings.compare;
  log_.ranks_per_node = settings.ranks_per_node;
  if (log_.monitor != nullptr) {
    log_.monitor->on_verdict([inner = inner_] { inner->abort(); });  // it may outlive this
  }
}

RecordedComm::~RecordedComm() {
  if (log_.monitor != nullptr) log_.monitor->on_verdict({});
  // What is in flight may never end; its owner must not wait for it.
  if (std::uncaught_exceptions() > uncaught_) inner_->abort();
}

Problems RecordedComm::validate(const Rendezvous& rendezvous) const {
  return inner_->validate(rendezvous);
}

void RecordedComm::connect(const Rendezvous& rendezvous) {
  log_.rank = rendezvous.rank;
  world_ = rendezvous.world;
  inner_->connect(rendezvous);
}

CommGroup& RecordedComm::group(const std::vector<int64_t>& ranks, CommChannel channel) {
  auto& found = groups_[{ranks, channel}];
  if (found != nullptr) return *found;
  const auto own = std::count(ranks.begin(), ranks.end(), log_.rank);
  const std::set<int64_t> different(ranks.begin(), ranks.end());
  const bool in_world = !ranks.empty() && *different.begin() >= 0 && *different.rbegin() < world_;
  if (own != 1 || different.size() != ranks.size() || !in_world) {
    throw Error(Problem{Code::kR4Contract,
                        {},
                        fmt::format("rank {} of {} asked for a group of ranks [{}]", log_.rank,
                                    world_, fmt::join(ranks, ", ")),
                        "a group has ranks of the world, each once, and this one among them",
                        ""});
  }
  const bool alone = ranks.size() == 1 && world_ > 1;
  log_.activity->set_waiting(true);  // its members connect
  CommGroup* const inner =
      alone ? nullptr
            : guarded_call(
                  log_.monitor,
                  [&] { return fmt::format("ranks [{}] cannot connect", fmt::join(ranks, ", ")); },
                  [&] { return &inner_->group(ranks, channel); });
  log_.activity->set_waiting(false);
  found = std::make_unique<RecordedGroup>(inner, ranks, channel, log_);
  return *found;
}

void RecordedComm::abort() { inner_->abort(); }

}  // namespace keyseat::comm
