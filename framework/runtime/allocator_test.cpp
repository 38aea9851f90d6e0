#include "runtime/allocator.h"

#include <doctest/doctest.h>

using namespace keyseat;

namespace {

size_t sum_of(const MemoryStatistics& statistics) {
  return std::accumulate(statistics.categories.begin(), statistics.categories.end(), size_t{0});
}

constexpr size_t kMiB = size_t{1} << 20;

}  // namespace

TEST_CASE("allocator: size classes lose at most an eighth") {
  for (int size_class = 0; size_class + 1 < kSizeClasses; ++size_class) {
    const size_t bytes = size_class_bytes(size_class);
    REQUIRE(size_class_of(bytes) == size_class);
    REQUIRE(size_class_of(bytes + 1) == size_class + 1);
    REQUIRE(bytes % 64 == 0);
    const size_t next = size_class_bytes(size_class + 1);
    if (bytes >= kLinearLimit) REQUIRE((next - bytes) * 8 <= bytes);
  }
  CHECK(size_class_bytes(size_class_of(1)) == 64);
  CHECK(size_class_bytes(size_class_of(kMiB)) == kMiB);
  CHECK(size_class_bytes(size_class_of(kMiB + 1)) == kMiB + kMiB / 8);
}

TEST_CASE("allocator: a freed block is handed out again, aligned") {
  CachingAllocator allocator(1024 * kMiB);
  for (size_t bytes : {size_t{1}, size_t{100}, size_t{5000}, 3 * kMiB, 40 * kMiB}) {
    c10::DataPtr first = allocator.allocate(bytes);
    void* const address = first.get();
    CHECK(reinterpret_cast<size_t>(address) % 64 == 0);
    std::memset(address, 7, bytes);
    first.clear();
    CHECK(allocator.allocate(bytes).get() == address);
  }
  CHECK(allocator.statistics().cache_hits == 5);
  CHECK(allocator.statistics().in_use == 0);
  CHECK(allocator.allocate(0).get() == nullptr);
}

TEST_CASE("allocator: ledger, peak, trim and cap") {
  CachingAllocator allocator(64 * kMiB);
  {
    std::vector<c10::DataPtr> held;
    {
      const MemoryScope scope(MemoryCategory::kParameters);
      held.push_back(allocator.allocate(32 * kMiB));
      const MemoryScope inner(MemoryCategory::kGradients);
      held.push_back(allocator.allocate(16 * kMiB));
    }
    held.push_back(allocator.allocate(1000));
    const MemoryStatistics statistics = allocator.statistics();
    CHECK(statistics.in_use == 48 * kMiB + 1024);
    CHECK(sum_of(statistics) == statistics.in_use);
    CHECK(statistics.categories[size_t(MemoryCategory::kParameters)] == 32 * kMiB);
    CHECK(statistics.categories[size_t(MemoryCategory::kGradients)] == 16 * kMiB);
    CHECK(statistics.categories[size_t(MemoryCategory::kActivations)] == 1024);
  }
  CHECK(allocator.statistics().in_use == 0);
  CHECK(allocator.statistics().peak == 48 * kMiB + 1024);
  CHECK(allocator.statistics().cached == 48 * kMiB + 1024);
  allocator.allocate(100 * kMiB).clear();  // beyond the cap: straight back to the system
  CHECK(allocator.statistics().cached == 48 * kMiB + 1024);
  allocator.trim();
  CHECK(allocator.statistics().cached == 0);
  CHECK(allocator.statistics().mapped == 0);
  allocator.reset_peak();
  CHECK(allocator.statistics().peak == 0);
}

TEST_CASE("allocator: the cap holds for blocks of every size") {
  CachingAllocator allocator(16 * kMiB);
  for (const size_t bytes : {size_t{1000}, 100 * size_t{1024}, kMiB, 6 * kMiB}) {
    std::vector<c10::DataPtr> held;
    for (size_t total = 0; total < 200 * kMiB; total += bytes) {
      held.push_back(allocator.allocate(bytes));
    }
    CHECK(allocator.statistics().in_use >= 200 * kMiB);
    held.clear();
    CHECK(allocator.statistics().in_use == 0);
    CHECK(allocator.statistics().cached <= 16 * kMiB);
    // Slabs of 32 MiB are given back whole; the rest of the last one was never cut.
    CHECK(allocator.statistics().mapped <= 16 * kMiB + 32 * kMiB);
    allocator.trim();
    CHECK(allocator.statistics().mapped == 0);
  }
}

TEST_CASE("allocator: trim keeps what is in use, and what is in use keeps its bytes") {
  CachingAllocator allocator(64 * kMiB);
  std::vector<c10::DataPtr> kept, freed;
  for (int i = 0; i < 100; ++i) {
    for (std::vector<c10::DataPtr>* list : {&kept, &freed}) {
      list->push_back(allocator.allocate(100000));
      std::memset(list->back().get(), i, 100000);
    }
  }
  freed.clear();
  const MemoryStatistics before = allocator.statistics();
  allocator.trim();
  CHECK(allocator.statistics().in_use == before.in_use);
  for (int i = 0; i < 100; ++i) {
    const auto* const bytes = static_cast<const char*>(kept[static_cast<size_t>(i)].get());
    CHECK(std::all_of(bytes, bytes + 100000, [&](char byte) { return byte == i; }));
  }
  // What trim could not give back is handed out again.
  const uint64_t hits = allocator.statistics().cache_hits;
  for (int i = 0; i < 100; ++i) freed.push_back(allocator.allocate(100000));
  CHECK(allocator.statistics().cache_hits == hits + 100);
}

TEST_CASE("allocator: the categories sum up to the total at any moment") {
  CachingAllocator allocator(64 * kMiB);
  std::atomic<bool> stop{false};
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<c10::DataPtr> held(20);
    while (!stop) {
      const MemoryScope scope(static_cast<MemoryCategory>(random() % kMemoryCategories));
      held[random() % held.size()] = allocator.allocate(1 + random() % 100000);
    }
  };
  std::thread first(work, 1), second(work, 2);
  bool equal = true;
  for (int i = 0; i < 20000; ++i) {
    const MemoryStatistics statistics = allocator.statistics();
    equal &= sum_of(statistics) == statistics.in_use;
  }
  stop = true;
  first.join();
  second.join();
  CHECK(equal);
  CHECK(allocator.statistics().in_use == 0);
}

TEST_CASE("allocator: many threads, blocks freed by others") {
  CachingAllocator allocator(256 * kMiB);
  std::mutex mutex;
  std::vector<c10::DataPtr> shared;
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 3000; ++i) {
      const size_t bytes = size_t{1} << (random() % 22);
      c10::DataPtr block = allocator.allocate(bytes + random() % 100);
      static_cast<char*>(block.get())[0] = static_cast<char>(seed);
      static_cast<char*>(block.get())[bytes - 1] = static_cast<char>(seed);
      const std::lock_guard lock(mutex);
      shared.push_back(std::move(block));
      if (shared.size() > 50) {
        std::swap(shared[random() % shared.size()], shared.back());
        shared.pop_back();
      }
      if (i == 1500) allocator.trim();
    }
  };
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 4; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
  CHECK(sum_of(allocator.statistics()) == allocator.statistics().in_use);
  shared.clear();
  CHECK(allocator.statistics().in_use == 0);
  allocator.trim();
  CHECK(allocator.statistics().mapped == 0);
}
