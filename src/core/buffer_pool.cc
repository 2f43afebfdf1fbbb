#include "core/buffer_pool.h"

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

AlignedBuffer BufferPool::take(std::size_t size) {
  AlignedBuffer buffer = take_spare(size);
  return buffer.capacity() == 0 ? fresh(size) : std::move(buffer);
}

std::shared_ptr<AlignedBuffer> BufferPool::share(AlignedBuffer buffer) {
  const auto give_back = [pool = weak_from_this()](AlignedBuffer* used) {
    if (const auto alive = pool.lock()) alive->put_back(std::move(*used));
    delete used;
  };
  return {new AlignedBuffer(std::move(buffer)), give_back};
}

AlignedBuffer BufferPool::take_spare(std::size_t size) {
  const std::size_t least = round_up(size, kIoAlignment), most = size + size / 8 + kIoAlignment;
  const std::lock_guard lock(mutex_);
  auto best = spare_.rend();
  for (auto spare = spare_.rbegin(); spare != spare_.rend(); ++spare) {
    if (spare->capacity() < least || spare->capacity() > most) continue;
    if (best == spare_.rend() || spare->capacity() < best->capacity()) best = spare;
    if (best->capacity() == least) break;
  }
  if (best == spare_.rend()) return {};
  AlignedBuffer buffer = std::move(*best);
  spare_.erase(std::next(best).base());
  spare_bytes_ -= buffer.capacity();
  buffer.resize(size);
  return buffer;
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
