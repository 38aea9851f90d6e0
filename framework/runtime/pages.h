// Memory straight from the system, in huge pages where it can give them.
#pragma once

#include <cstddef>

namespace keyseat {

inline constexpr size_t kHugePage = size_t{1} << 21;

// `bytes` of zeroed memory, aligned to a huge page; nullptr where there is none left.
void* map_pages(size_t bytes);
void unmap_pages(void* memory, size_t bytes);

}  // namespace keyseat
