#include "tier/buffer_pool.h"

#include <utility>

#include "core/huge_pages.h"

namespace shale {
namespace {

AlignedBuffer fresh(std::size_t size) {
  AlignedBuffer buffer(size);
  prefer_huge_pages(buffer.data(), buffer.capacity());
  return buffer;
}

}  // namespace

std::shared_ptr<BufferPool> BufferPool::make(std::size_t spare_bytes_max) {
  return std::shared_ptr<BufferPool>(new BufferPool(spare_bytes_max));
}

std::shared_ptr<AlignedBuffer> BufferPool::get(std::size_t size) {
  AlignedBuffer buffer = take_spare(size);
  if (buffer.capacity() == 0) buffer = fresh(size);
  const auto give_back = [pool = weak_from_this()](AlignedBuffer* used) {
    if (const auto alive = pool.lock()) alive->put_back(std::move(*used));
    delete used;
  };
  return {new AlignedBuffer(std::move(buffer)), give_back};
}

AlignedBuffer BufferPool::take_spare(std::size_t size) {
  const std::lock_guard lock(mutex_);
  for (auto spare = spare_.rbegin(); spare != spare_.rend(); ++spare) {
    if (spare->capacity() < size || spare->capacity() > size + size / 8 + kIoAlignment) continue;
    AlignedBuffer buffer = std::move(*spare);
    spare_.erase(std::next(spare).base());
    spare_bytes_ -= buffer.capacity();
    buffer.resize(size);
    return buffer;
  }
  return {};
}

void BufferPool::put_back(AlignedBuffer buffer) {
  const std::lock_guard lock(mutex_);
  spare_bytes_ += buffer.capacity();
  spare_.push_back(std::move(buffer));
  while (spare_bytes_ > spare_bytes_max_) {
    spare_bytes_ -= spare_.front().capacity();
    spare_.pop_front();
  }
}

std::size_t BufferPool::spare_bytes() const {
  const std::lock_guard lock(mutex_);
  return spare_bytes_;
}

}  // namespace shale
