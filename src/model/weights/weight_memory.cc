#include "model/weights/weight_memory.h"

#include <algorithm>
#include <new>

#include "core/aligned_buffer.h"
#include "core/huge_pages.h"

namespace shale {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{32} << 20;
constexpr std::size_t kAlignment = 64;

}  // namespace

std::byte* WeightMemory::allocate(std::size_t bytes) {
  bytes = round_up(std::max<std::size_t>(bytes, 1), kAlignment);
  if (bytes > chunk_bytes_ - used_) {
    const std::size_t size = round_up(std::max(bytes, kChunkBytes), kHugePageBytes);
    chunks_.emplace_back(static_cast<std::byte*>(std::aligned_alloc(kHugePageBytes, size)));
    if (!chunks_.back()) throw std::bad_alloc();
    prefer_huge_pages(chunks_.back().get(), size);
    chunk_bytes_ = size;
    used_ = 0;
  }
  std::byte* at = chunks_.back().get() + used_;
  used_ += bytes;
  return at;
}

}  // namespace shale
