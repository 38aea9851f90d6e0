#include "runtime/memory_ledger.h"

namespace keyseat {
namespace {

thread_local MemoryCategory g_category = MemoryCategory::kActivations;

}  // namespace

const char* memory_category_name(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::kActivations:
      return "activations";
    case MemoryCategory::kParameters:
      return "parameters";
    case MemoryCategory::kGradients:
      return "gradients";
    case MemoryCategory::kOptimizer:
      return "optimizer";
    case MemoryCategory::kData:
      return "data";
  }
  return "unknown";
}

MemoryCategory current_memory_category() { return g_category; }

MemoryScope::MemoryScope(MemoryCategory category) : before_(std::exchange(g_category, category)) {}
MemoryScope::~MemoryScope() { g_category = before_; }

void MemoryLedger::Count::add(size_t more) {
  const size_t now = bytes.fetch_add(more, std::memory_order_relaxed) + more;
  size_t highest = peak.load(std::memory_order_relaxed);
  while (now > highest && !peak.compare_exchange_weak(highest, now, std::memory_order_relaxed)) {
  }
}

void MemoryLedger::add(MemoryCategory category, size_t bytes) {
  total_.add(bytes);
  categories_[static_cast<size_t>(category)].add(bytes);
}

void MemoryLedger::subtract(MemoryCategory category, size_t bytes) {
  total_.bytes.fetch_sub(bytes, std::memory_order_relaxed);
  categories_[static_cast<size_t>(category)].bytes.fetch_sub(bytes, std::memory_order_relaxed);
}

void MemoryLedger::reset_peaks() {
  total_.peak = total_.bytes.load();
  for (Count& count : categories_) count.peak = count.bytes.load();
}

void MemoryLedger::read(MemoryStatistics& statistics) const {
  // Read while others allocate, a count of its own could differ from the sum by what is under way.
  statistics.in_use = 0;
  statistics.peak = total_.peak;
  for (size_t i = 0; i < categories_.size(); ++i) {
    statistics.categories[i] = categories_[i].bytes;
    statistics.in_use += statistics.categories[i];
    statistics.category_peaks[i] = categories_[i].peak;
  }
}

}  // namespace keyseat
