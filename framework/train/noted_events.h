// The strategy's unit events, with a note of the unit that runs: a rank that is lost is named with
// it, and so is every collective.
#pragma once

#include <string>

#include "comm/activity.h"
#include "keyseat/chain.h"
#include "keyseat/executor.h"

namespace keyseat::train {

class NotedEvents final : public UnitEvents {
 public:
  NotedEvents(UnitEvents& events, const Chain& chain, comm::Activity& activity)
      : events_(events), chain_(chain), activity_(activity) {}

  const Params& before_forward(int unit, bool training) override {
    activity_.set_unit(chain_.units()[unit].name + " forward");
    return events_.before_forward(unit, training);
  }
  void after_forward(int unit) override { events_.after_forward(unit); }
  const Params& before_backward(int unit) override {
    activity_.set_unit(chain_.units()[unit].name + " backward");
    return events_.before_backward(unit);
  }
  void after_backward(int unit) override { events_.after_backward(unit); }

 private:
  UnitEvents& events_;
  const Chain& chain_;
  comm::Activity& activity_;
};

}  // namespace keyseat::train
