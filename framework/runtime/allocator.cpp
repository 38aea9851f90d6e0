#include "runtime/allocator.h"

#include <c10/core/CPUAllocator.h>

#include "runtime/pages.h"

namespace keyseat {

// A mapping from which the blocks of one class are cut, front to back.
struct CachingAllocator::Slab {
  char* memory;
  size_t bytes;
  size_t next = 0;    // offset of the first byte not yet cut
  size_t in_use = 0;  // blocks held by tensors
};

struct CachingAllocator::Header {
  CachingAllocator* allocator;
  Slab* slab;    // null: a mapping of its own
  Header* next;  // in the list of free blocks
  int size_class;
  MemoryCategory category;

  size_t bytes() const { return size_class_bytes(size_class); }
};

namespace {

constexpr size_t kHeaderBytes = 64;               // keeps data aligned to cache lines
constexpr size_t kMappedAlone = size_t{4} << 20;  // classes from here on have no slab
constexpr size_t kSmallSlab = kHugePage;
constexpr size_t kLargeSlab = 16 * kHugePage;  // for classes above 1/16 of a small slab

}  // namespace

CachingAllocator::~CachingAllocator() { trim(); }

c10::DeleterFnPtr CachingAllocator::raw_deleter() const { return &CachingAllocator::release; }

void CachingAllocator::copy_data(void* to, const void* from, size_t bytes) const {
  default_copy_data(to, from, bytes);
}

c10::DataPtr CachingAllocator::allocate(size_t bytes) {
  static_assert(sizeof(Header) <= kHeaderBytes);
  if (bytes == 0) return {nullptr, nullptr, &CachingAllocator::release, at::kCPU};
  TORCH_CHECK_WITH(OutOfMemoryError, bytes < size_t{1} << 46, "a tensor of ", bytes, " bytes");
  allocations_.fetch_add(1, std::memory_order_relaxed);
  Header* const header = take(size_class_of(bytes));
  header->category = current_memory_category();
  ledger_.add(header->category, header->bytes());
  void* const data = reinterpret_cast<char*>(header) + kHeaderBytes;
  return {data, data, &CachingAllocator::release, at::kCPU};
}

CachingAllocator::Header* CachingAllocator::take(int size_class) {
  Bin& bin = bins_[size_class];
  const size_t bytes = size_class_bytes(size_class);
  {
    const std::lock_guard lock(bin.mutex);
    if (Header* const header = bin.free) {
      bin.free = header->next;
      if (header->slab != nullptr) ++header->slab->in_use;
      cached_ -= bytes;
      hits_.fetch_add(1, std::memory_order_relaxed);
      return header;
    }
    if (bytes < kMappedAlone) {
      if (Header* const header = cut_block(bin, size_class)) return header;
    }
  }
  if (bytes >= kMappedAlone) return map_block(size_class);
  // The bin's lock is not held here: mapping may have to trim every bin.
  const size_t slab_bytes = bytes * 16 <= kSmallSlab ? kSmallSlab : kLargeSlab;
  auto* const memory = static_cast<char*>(map_or_trim(slab_bytes));
  const std::lock_guard lock(bin.mutex);
  bin.slabs.push_back(new Slab{memory, slab_bytes});
  return cut_block(bin, size_class);
}

CachingAllocator::Header* CachingAllocator::cut_block(Bin& bin, int size_class) {
  if (bin.slabs.empty()) return nullptr;
  Slab* const slab = bin.slabs.back();
  const size_t stride = kHeaderBytes + size_class_bytes(size_class);
  if (slab->next + stride > slab->bytes) return nullptr;
  char* const memory = slab->memory + slab->next;
  slab->next += stride;
  ++slab->in_use;
  return new (memory) Header{this, slab, nullptr, size_class, MemoryCategory::kActivations};
}

CachingAllocator::Header* CachingAllocator::map_block(int size_class) {
  void* const memory = map_or_trim(kHeaderBytes + size_class_bytes(size_class));
  return new (memory) Header{this, nullptr, nullptr, size_class, MemoryCategory::kActivations};
}

void* CachingAllocator::map_or_trim(size_t bytes) {
  void* memory = map_pages(bytes);
  if (memory == nullptr) {
    trim();
    memory = map_pages(bytes);
  }
  TORCH_CHECK_WITH(OutOfMemoryError, memory != nullptr, "the system has no ", bytes,
                   " bytes left for a tensor; ", mapped_.load(), " are mapped already");
  mapped_ += bytes;
  return memory;
}

void CachingAllocator::unmap(void* memory, size_t bytes) {
  unmap_pages(memory, bytes);
  mapped_ -= bytes;
}

void CachingAllocator::release(void* data) {
  if (data == nullptr) return;
  auto* const header = reinterpret_cast<Header*>(static_cast<char*>(data) - kHeaderBytes);
  header->allocator->put_back(header);
}

void CachingAllocator::put_back(Header* header) {
  const size_t bytes = header->bytes();
  ledger_.subtract(header->category, bytes);
  Slab* const slab = header->slab;
  if (slab == nullptr && cached_ + bytes > cache_bytes_) {
    unmap(header, kHeaderBytes + bytes);
    return;
  }
  Bin& bin = bins_[header->size_class];
  const std::lock_guard lock(bin.mutex);
  cached_ += bytes;
  header->next = bin.free;
  bin.free = header;
  if (slab != nullptr && --slab->in_use == 0 && cached_ > cache_bytes_) give_back(bin, slab);
}

void CachingAllocator::give_back(Bin& bin, Slab* slab) {
  Header** link = &bin.free;
  while (Header* const header = *link) {
    if (header->slab == slab) {
      cached_ -= header->bytes();
      *link = header->next;
    } else {
      link = &header->next;
    }
  }
  std::erase(bin.slabs, slab);
  unmap(slab->memory, slab->bytes);
  delete slab;
}

void CachingAllocator::trim() {
  for (Bin& bin : bins_) {
    const std::lock_guard lock(bin.mutex);
    Header* kept = nullptr;
    for (Header* header = bin.free; header != nullptr;) {
      Header* const next = header->next;
      if (header->slab != nullptr && header->slab->in_use > 0) {
        header->next = kept;
        kept = header;
      } else {
        cached_ -= header->bytes();
        if (header->slab == nullptr) unmap(header, kHeaderBytes + header->bytes());
      }
      header = next;
    }
    bin.free = kept;
    std::erase_if(bin.slabs, [&](Slab* slab) {
      if (slab->in_use > 0) return false;
      unmap(slab->memory, slab->bytes);
      delete slab;
      return true;
    });
  }
}

MemoryStatistics CachingAllocator::statistics() const {
  MemoryStatistics statistics;
  ledger_.read(statistics);
  statistics.cached = cached_;
  statistics.mapped = mapped_;
  statistics.allocations = allocations_;
  statistics.cache_hits = hits_;
  return statistics;
}

namespace {

CachingAllocator* g_installed = nullptr;

}  // namespace

void install_caching_allocator(size_t cache_bytes) {
#ifdef KEYSEAT_ASAN
  static_cast<void>(cache_bytes);
#else
  if (g_installed != nullptr) return;
  // Lives as long as the process: tensors in static objects are freed after main.
  g_installed = new CachingAllocator(cache_bytes);
  constexpr uint8_t kOverDefault = 100;
  c10::SetCPUAllocator(g_installed, kOverDefault);
#endif
}

bool caching_allocator_installed() { return g_installed != nullptr; }

MemoryStatistics memory_statistics() {
  return g_installed != nullptr ? g_installed->statistics() : MemoryStatistics{};
}

void reset_memory_peak() {
  if (g_installed != nullptr) g_installed->reset_peak();
}

void trim_memory_cache() {
  if (g_installed != nullptr) g_installed->trim();
}

}  // namespace keyseat
