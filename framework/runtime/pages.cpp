#include "runtime/pages.h"

#include <sys/mman.h>

namespace keyseat {

void* map_pages(size_t bytes) {
  // Ask for one huge page more and give back what lies outside of the aligned part.
  const size_t asked = bytes + kHugePage;
  void* const memory = mmap(nullptr, asked, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(memory);
  const size_t skip = (kHugePage - reinterpret_cast<size_t>(begin) % kHugePage) % kHugePage;
  char* const aligned = begin + skip;
  const size_t length = (bytes + 4095) / 4096 * 4096;
  if (skip > 0) munmap(begin, skip);
  const size_t tail = asked - skip - length;
  if (tail >= 4096) munmap(aligned + length, tail);
  madvise(aligned, length, MADV_HUGEPAGE);  // advice: where it is refused, small pages serve too
  return aligned;
}

void unmap_pages(void* memory, size_t bytes) { munmap(memory, (bytes + 4095) / 4096 * 4096); }

}  // namespace keyseat
