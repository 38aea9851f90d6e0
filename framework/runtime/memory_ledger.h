// Counts bytes in use by category, with peaks. Thread-safe, without locks.
#pragma once

#include <atomic>

#include "keyseat/memory.h"

namespace keyseat {

MemoryCategory current_memory_category();  // of this thread: that of the innermost MemoryScope

class MemoryLedger {
 public:
  void add(MemoryCategory category, size_t bytes);
  void subtract(MemoryCategory category, size_t bytes);
  void reset_peaks();
  void read(MemoryStatistics& statistics) const;

 private:
  struct Count {
    std::atomic<size_t> bytes{0}, peak{0};
    void add(size_t more);
  };
  Count total_;
  std::array<Count, kMemoryCategories> categories_;
};

}  // namespace keyseat
