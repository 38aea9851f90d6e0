// Legend: M rows sorted by group, E groups, I in features, O out features.
#include "nn/grouped_gemm.h"

#include <ATen/ops/mm.h>

namespace keyseat::nn {
namespace {

struct Group {
  int64_t expert;
  int64_t begin, rows;
};

// Non-empty groups, and through `used` the rows that belong to any.
std::vector<Group> non_empty(const std::vector<int64_t>& counts, int64_t* used) {
  std::vector<Group> groups;
  int64_t begin = 0;
  for (size_t e = 0; e < counts.size(); ++e) {
    if (counts[e] > 0) groups.push_back({static_cast<int64_t>(e), begin, counts[e]});
    begin += counts[e];
  }
  *used = begin;
  return groups;
}

template <typename Function>
void for_each_group(const std::vector<Group>& groups, Function&& function) {
  for (const Group& group : groups) function(group);
}

void zero_tail(const at::Tensor& rows, int64_t used) {
  if (used < rows.size(0)) rows.narrow(0, used, rows.size(0) - used).zero_();
}

}  // namespace

void grouped_forward(const at::Tensor& rows_MI, const at::Tensor& weight_EOI,
                     const std::vector<int64_t>& counts, const at::Tensor& y_MO) {
  int64_t used = 0;
  for_each_group(non_empty(counts, &used), [&](const Group& group) {
    at::Tensor y = y_MO.narrow(0, group.begin, group.rows);
    at::mm_out(y, rows_MI.narrow(0, group.begin, group.rows),
               weight_EOI.select(0, group.expert).t());
  });
  zero_tail(y_MO, used);
}

void grouped_input_gradient(const at::Tensor& gradient_MO, const at::Tensor& weight_EOI,
                            const std::vector<int64_t>& counts, const at::Tensor& output_MI) {
  int64_t used = 0;
  for_each_group(non_empty(counts, &used), [&](const Group& group) {
    at::Tensor output = output_MI.narrow(0, group.begin, group.rows);
    at::mm_out(output, gradient_MO.narrow(0, group.begin, group.rows),
               weight_EOI.select(0, group.expert));
  });
  zero_tail(output_MI, used);
}

void grouped_weight_gradient(const at::Tensor& gradient_MO, const at::Tensor& rows_MI,
                             const std::vector<int64_t>& counts,
                             const at::Tensor& accumulator_EOI) {
  int64_t used = 0;
  for_each_group(non_empty(counts, &used), [&](const Group& group) {
    at::Tensor accumulator = accumulator_EOI.select(0, group.expert);
    const at::Tensor gradient = gradient_MO.narrow(0, group.begin, group.rows).t();
    const at::Tensor rows = rows_MI.narrow(0, group.begin, group.rows);
    if (accumulator.scalar_type() == rows.scalar_type()) {
      accumulator.addmm_(gradient, rows);
    } else {
      accumulator.add_(at::mm(gradient, rows));
    }
  });
}

}  // namespace keyseat::nn
