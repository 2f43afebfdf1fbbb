// Memory in huge pages is read faster than in small ones.
#pragma once

#include <sys/mman.h>

#include <cstddef>

namespace shale {

inline constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

// Asks for huge pages where the memory holds any. Advice: a kernel without them serves small ones.
inline void prefer_huge_pages(void* begin, std::size_t bytes) {
  if (bytes >= kHugePageBytes) static_cast<void>(madvise(begin, bytes, MADV_HUGEPAGE));
}

}  // namespace shale
