// Legend: M rows sorted by group, E groups, I in features, O out features.
//
// On the CPU the products are cut into tasks that the threads draw from one counter, each a GEMM on
// one thread. Measured at 960 tokens x 4 of 32 experts (120 rows each, 512 x 512, AVX-512): a
// single-threaded GEMM keeps its full rate from 32 rows on, while a GEMM per expert on two threads
// meets 32 barriers and falls behind by several times as soon as anything else runs. How the work
// is cut depends on the counts only, so neither the number of threads nor who drew what shows in
// the result.
#include "nn/grouped_gemm.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/mm.h>

namespace keyseat::nn {
namespace {

// Rows of a task; large groups are cut into equal parts of at most this size.
constexpr int64_t kTaskRows = 128;
// Out features of a task of the weight gradient: at least this many.
constexpr int64_t kTaskFeatures = 64;

struct Task {
  int64_t expert;
  int64_t row, rows;
  int64_t feature, features;  // of O; only the weight gradient is cut here
};

// Cuts [0, size) into equal parts.
template <typename Function>
void cut(int64_t size, int64_t parts, Function&& function) {
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t begin = size * part / parts;
    function(begin, size * (part + 1) / parts - begin);
  }
}

int64_t parts_of(int64_t rows) { return (rows + kTaskRows - 1) / kTaskRows; }

// function(expert, first row, rows) for every group that has rows; returns the rows of all.
template <typename Function>
int64_t for_each_group(const std::vector<int64_t>& counts, Function&& function) {
  int64_t begin = 0;
  for (size_t e = 0; e < counts.size(); ++e) {
    if (counts[e] > 0) function(static_cast<int64_t>(e), begin, counts[e]);
    begin += counts[e];
  }
  return begin;
}

// Large tasks first: what is drawn last is small, and the threads end together.
template <typename Function>
void run(std::vector<Task> tasks, const at::Tensor& rows, Function&& function) {
  if (!rows.is_cpu()) {
    for (const Task& task : tasks) function(task);
    return;
  }
  std::stable_sort(tasks.begin(), tasks.end(), [](const Task& a, const Task& b) {
    return a.rows * a.features > b.rows * b.features;
  });
  std::atomic<size_t> next{0};
  at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t /*begin*/, int64_t /*end*/) {
    // Threads of the pool do not inherit the caller's grad mode.
    const at::AutoDispatchBelowADInplaceOrView guard;
    for (size_t i = next++; i < tasks.size(); i = next++) function(tasks[i]);
  });
}

std::vector<Task> row_tasks(const std::vector<int64_t>& counts, int64_t features, int64_t* used) {
  std::vector<Task> tasks;
  *used = for_each_group(counts, [&](int64_t expert, int64_t begin, int64_t rows) {
    cut(rows, parts_of(rows), [&](int64_t offset, int64_t size) {
      tasks.push_back({expert, begin + offset, size, 0, features});
    });
  });
  return tasks;
}

void zero_tail(const at::Tensor& rows, int64_t used) {
  if (used < rows.size(0)) rows.narrow(0, used, rows.size(0) - used).zero_();
}

}  // namespace

void grouped_forward(const at::Tensor& rows_MI, const at::Tensor& weight_EOI,
                     const std::vector<int64_t>& counts, const at::Tensor& y_MO) {
  int64_t used = 0;
  run(row_tasks(counts, weight_EOI.size(1), &used), rows_MI, [&](const Task& task) {
    at::Tensor y = y_MO.narrow(0, task.row, task.rows);
    at::mm_out(y, rows_MI.narrow(0, task.row, task.rows), weight_EOI.select(0, task.expert).t());
  });
  zero_tail(y_MO, used);
}

void grouped_input_gradient(const at::Tensor& gradient_MO, const at::Tensor& weight_EOI,
                            const std::vector<int64_t>& counts, const at::Tensor& output_MI) {
  int64_t used = 0;
  run(row_tasks(counts, weight_EOI.size(1), &used), gradient_MO, [&](const Task& task) {
    at::Tensor output = output_MI.narrow(0, task.row, task.rows);
    at::mm_out(output, gradient_MO.narrow(0, task.row, task.rows),
               weight_EOI.select(0, task.expert));
  });
  zero_tail(output_MI, used);
}

void grouped_weight_gradient(const at::Tensor& gradient_MO, const at::Tensor& rows_MI,
                             const std::vector<int64_t>& counts,
                             const at::Tensor& accumulator_EOI) {
  const int64_t out = accumulator_EOI.size(1);
  std::vector<Task> tasks;
  // A large group is cut along O: every element is still one product over all rows of its group.
  for_each_group(counts, [&](int64_t expert, int64_t begin, int64_t rows) {
    const int64_t parts = std::clamp<int64_t>(out / kTaskFeatures, 1, parts_of(rows));
    cut(out, parts, [&](int64_t feature, int64_t features) {
      tasks.push_back({expert, begin, rows, feature, features});
    });
  });
  run(std::move(tasks), rows_MI, [&](const Task& task) {
    at::Tensor accumulator =
        accumulator_EOI.select(0, task.expert).narrow(0, task.feature, task.features);
    const at::Tensor gradient =
        gradient_MO.narrow(0, task.row, task.rows).narrow(1, task.feature, task.features).t();
    const at::Tensor rows = rows_MI.narrow(0, task.row, task.rows);
    if (accumulator.scalar_type() == rows.scalar_type()) {
      accumulator.addmm_(gradient, rows);
    } else {
      accumulator.add_(at::mm(gradient, rows));
    }
  });
}

}  // namespace keyseat::nn
