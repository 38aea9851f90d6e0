// The learning-rate schedule: a factor of the optimizer's base rate.
#pragma once

#include "keyseat/config.h"

namespace keyseat::train {

// Factor for the update with number `step`, from 0. Warm-up is linear: 1 / warmup_steps at step 0,
// 1 at step warmup_steps - 1.
double schedule_factor(const ScheduleSettings& schedule, int64_t step);

}  // namespace keyseat::train
