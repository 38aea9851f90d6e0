#include "train/lr_schedule.h"

#include <doctest/doctest.h>

using keyseat::ScheduleKind;
using keyseat::ScheduleSettings;
using keyseat::train::schedule_factor;

TEST_CASE("schedule: warm-up is linear and then constant") {
  ScheduleSettings schedule;
  schedule.warmup_steps = 4;
  CHECK(schedule_factor(schedule, 0) == doctest::Approx(0.25));
  CHECK(schedule_factor(schedule, 3) == doctest::Approx(1.0));
  CHECK(schedule_factor(schedule, 1000) == doctest::Approx(1.0));
}

TEST_CASE("schedule: cosine falls from 1 to min_ratio at total_steps and stays there") {
  ScheduleSettings schedule{ScheduleKind::kCosine, 10, 110, 0, 0.1};
  CHECK(schedule_factor(schedule, 10) == doctest::Approx(1.0));
  CHECK(schedule_factor(schedule, 60) == doctest::Approx(0.55));
  CHECK(schedule_factor(schedule, 110) == doctest::Approx(0.1));
  CHECK(schedule_factor(schedule, 500) == doctest::Approx(0.1));
}

TEST_CASE("schedule: wsd is constant and then falls linearly over decay_steps") {
  ScheduleSettings schedule{ScheduleKind::kWsd, 2, 100, 20, 0.0};
  CHECK(schedule_factor(schedule, 79) == doctest::Approx(1.0));
  CHECK(schedule_factor(schedule, 90) == doctest::Approx(0.5));
  CHECK(schedule_factor(schedule, 100) == doctest::Approx(0.0));
}
