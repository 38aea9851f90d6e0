// Tensor memory on the CPU: a caching allocator with huge pages, and the ledger that says what the
// memory is for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "keyseat/export.h"

namespace keyseat {

enum class MemoryCategory { kActivations, kParameters, kGradients, kOptimizer, kData };
inline constexpr int kMemoryCategories = 5;
KEYSEAT_API const char* memory_category_name(MemoryCategory category);  // "activations", ...

// What this thread allocates while it lives belongs to `category`; otherwise to kActivations.
// Memory keeps its category until it is freed, by whichever thread.
class KEYSEAT_API MemoryScope {
 public:
  explicit MemoryScope(MemoryCategory category);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;

 private:
  MemoryCategory before_;
};

// Bytes, in size classes as the allocator gives them. The categories sum up to in_use exactly.
struct MemoryStatistics {
  size_t in_use = 0;  // held by tensors
  size_t peak = 0;    // largest in_use since the last reset
  size_t cached = 0;  // free, kept for reuse
  size_t mapped = 0;  // asked from the system: in_use, cached and what blocks round up to
  uint64_t allocations = 0;
  uint64_t cache_hits = 0;
  std::array<size_t, kMemoryCategories> categories{};
  std::array<size_t, kMemoryCategories> category_peaks{};  // each at its own time
};

// Makes the caching allocator LibTorch's CPU allocator, once, before the first tensor.
// `cache_bytes`: free memory beyond it goes back to the system. Does nothing in address-sanitizer
// builds, where every tensor has to come from malloc; then all statistics are zero.
KEYSEAT_API void install_caching_allocator(size_t cache_bytes);
KEYSEAT_API bool caching_allocator_installed();
KEYSEAT_API MemoryStatistics memory_statistics();
KEYSEAT_API void reset_memory_peak();
KEYSEAT_API void trim_memory_cache();  // gives all free memory back to the system

}  // namespace keyseat
