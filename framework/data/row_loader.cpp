#include "data/row_loader.h"

namespace keyseat::data {

RowLoader::RowLoader(BuildRow build, int64_t threads) : build_(std::move(build)) {
  for (int64_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

RowLoader::~RowLoader() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wanted_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void RowLoader::add(std::vector<PlannedRow> rows) {
  auto step = std::make_shared<Step>();
  step->rows.resize(rows.size());
  step->planned = std::move(rows);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    steps_.push_back(std::move(step));
  }
  wanted_.notify_all();
}

size_t RowLoader::queued() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return steps_.size();
}

void RowLoader::clear() {
  const std::lock_guard<std::mutex> lock(mutex_);
  steps_.clear();
}

std::vector<LoadedRow> RowLoader::take() {
  std::shared_ptr<Step> step;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    step = steps_.front();
  }
  if (threads_.empty()) {
    for (size_t row = 0; row < step->planned.size(); ++row) build_one(step, row);
  }
  std::unique_lock<std::mutex> lock(mutex_);
  done_.wait(lock, [&] { return step->finished == step->planned.size(); });
  steps_.pop_front();
  if (step->error) std::rethrow_exception(step->error);
  return std::move(step->rows);
}

void RowLoader::build_one(const std::shared_ptr<Step>& step, size_t row) {
  LoadedRow built;
  std::exception_ptr error;
  try {
    built = build_(step->planned[row]);
  } catch (...) {
    error = std::current_exception();
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    step->rows[row] = std::move(built);
    if (error && !step->error) step->error = error;
    ++step->finished;
  }
  done_.notify_all();
}

void RowLoader::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    std::shared_ptr<Step> step;
    wanted_.wait(lock, [&] {
      if (stop_) return true;
      for (const auto& candidate : steps_) {
        if (candidate->started < candidate->planned.size()) {
          step = candidate;
          return true;
        }
      }
      return false;
    });
    if (stop_) return;
    const size_t row = step->started++;
    lock.unlock();
    build_one(step, row);
    lock.lock();
  }
}

}  // namespace keyseat::data
