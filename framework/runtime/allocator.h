// A caching allocator for CPU tensors. A fresh allocation costs five times its fill in page faults,
// so freed blocks are kept by size class and handed out again.
//
// Blocks of a class below 4 MiB are cut from slabs; larger ones are mapped one by one. A header of
// 64 bytes in front of every block says what it is, so freeing needs no table.
#pragma once

#include <c10/core/Allocator.h>

#include <array>
#include <atomic>
#include <mutex>
#include <vector>

#include "runtime/memory_ledger.h"
#include "runtime/size_classes.h"

namespace keyseat {

class CachingAllocator final : public c10::Allocator {
 public:
  // `cache_bytes` bounds the free memory that is kept: beyond it a large block goes back at once, a
  // slab when its last block is freed.
  explicit CachingAllocator(size_t cache_bytes) : cache_bytes_(cache_bytes) {}
  ~CachingAllocator() override;

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t bytes) const override;

  void trim();
  void reset_peak() { ledger_.reset_peaks(); }
  MemoryStatistics statistics() const;

 private:
  struct Slab;
  struct Header;
  struct Bin {
    std::mutex mutex;
    Header* free = nullptr;
    std::vector<Slab*> slabs;
  };
  static void release(void* data);
  Header* take(int size_class);
  Header* map_block(int size_class);
  Header* cut_block(Bin& bin, int size_class);
  void* map_or_trim(size_t bytes);
  void put_back(Header* header);
  void give_back(Bin& bin, Slab* slab);  // under the bin's lock; no block of it is in use
  void unmap(void* memory, size_t bytes);

  size_t cache_bytes_;
  MemoryLedger ledger_;
  std::array<Bin, kSizeClasses> bins_;
  std::atomic<size_t> cached_{0}, mapped_{0};
  std::atomic<uint64_t> allocations_{0}, hits_{0};
};

}  // namespace keyseat
