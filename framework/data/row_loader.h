// Loader threads ahead of the step. The order of results depends on the plan only, never on the
// number of threads.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "data/step_planner.h"
#include "keyseat/batch.h"

namespace keyseat::data {

// A sample that left its slot empty.
struct FailedSample {
  std::string reason, example;  // "truncated", "shard.tar:000123: ..."
};

// A row, and what is to be counted when its step is taken.
struct LoadedRow {
  Row row;
  std::vector<FailedSample> failed;
};

// Builds one row; called from loader threads (or from the caller with 0 threads).
using BuildRow = std::function<LoadedRow(const PlannedRow& samples)>;

class RowLoader {
 public:
  // threads 0: everything runs in take().
  RowLoader(BuildRow build, int64_t threads);
  ~RowLoader();  // stops and joins
  RowLoader(const RowLoader&) = delete;

  // Queues the rows of a step.
  void add(std::vector<PlannedRow> rows);
  // The rows of the step queued first; waits for them. An exception of build comes out here.
  std::vector<LoadedRow> take();
  size_t queued() const;  // steps added and not taken
  void clear();           // forgets queued steps; rows under way are finished and dropped

 private:
  struct Step {
    std::vector<PlannedRow> planned;
    std::vector<LoadedRow> rows;
    std::exception_ptr error;
    size_t started = 0, finished = 0;
  };
  void work();
  void build_one(const std::shared_ptr<Step>& step, size_t row);

  BuildRow build_;
  std::vector<std::thread> threads_;
  mutable std::mutex mutex_;
  std::condition_variable wanted_, done_;
  std::deque<std::shared_ptr<Step>> steps_;
  bool stop_ = false;
};

}  // namespace keyseat::data
