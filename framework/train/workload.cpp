#include "train/workload.h"

namespace keyseat::train {

namespace {

// Sum of the squared lengths of the first `segments` segments.
double sum_of_squares(const std::vector<int64_t>& cu_lengths, size_t segments) {
  double sum = 0;
  for (size_t i = 0; i < segments; ++i) {
    const auto length = static_cast<double>(cu_lengths[i + 1] - cu_lengths[i]);
    sum += length * length;
  }
  return sum;
}

size_t segments_of(const std::vector<int64_t>& cu_lengths) {
  return cu_lengths.empty() ? 0 : cu_lengths.size() - 1;
}

}  // namespace

WorkloadShape workload_shape(const RowFacts& facts, double element_bytes) {
  const RowCounts& counts = facts.counts;
  WorkloadShape shape;
  shape.tokens = static_cast<double>(counts.tokens);
  shape.patches = static_cast<double>(counts.patches);
  shape.visual_tokens = static_cast<double>(counts.visual_tokens);
  shape.supervised = static_cast<double>(counts.supervised);
  const size_t segments = segments_of(facts.cu_seqlens);
  shape.sequence_squares =
      sum_of_squares(facts.cu_seqlens, counts.padding > 0 ? segments - 1 : segments);
  shape.frame_squares =
      sum_of_squares(facts.vision_cu_seqlens, segments_of(facts.vision_cu_seqlens));
  shape.element_bytes = element_bytes;
  return shape;
}

StepFlops step_flops(const Chain& chain, const WorkloadShape& shape) {
  StepFlops flops;
  for (int unit = 0; unit < chain.size(); ++unit) {
    const double forward = chain.units()[unit].unit->cost(shape).flops;
    flops.counted += 3 * forward;
    flops.executed += chain.passes(unit) * forward;
  }
  return flops;
}

}  // namespace keyseat::train
