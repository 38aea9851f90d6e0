#include "train/lr_schedule.h"

#include <numbers>

namespace keyseat::train {

double schedule_factor(const ScheduleSettings& schedule, int64_t step) {
  if (step < schedule.warmup_steps) {
    // The first update already moves: step 0 has 1 / warmup_steps.
    return static_cast<double>(step + 1) / static_cast<double>(schedule.warmup_steps);
  }
  if (schedule.kind == ScheduleKind::kConstant) return 1.0;
  const double low = schedule.min_ratio;
  const bool cosine = schedule.kind == ScheduleKind::kCosine;
  const int64_t begin =
      cosine ? schedule.warmup_steps : schedule.total_steps - schedule.decay_steps;
  if (step < begin) return 1.0;
  const auto length = static_cast<double>(std::max<int64_t>(schedule.total_steps - begin, 1));
  const double progress = std::min(1.0, static_cast<double>(step - begin) / length);
  if (!cosine) return 1.0 - (1.0 - low) * progress;
  return low + (1.0 - low) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

}  // namespace keyseat::train
