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
  ++takes_;
  auto best = spare_.rend();
  for (auto spare = spare_.rbegin(); spare != spare_.rend(); ++spare) {
    const std::size_t capacity = spare->buffer.capacity();
    if (capacity < least || capacity > most) continue;
    if (best == spare_.rend() || capacity < best->buffer.capacity()) best = spare;
    if (best->buffer.capacity() == least) break;
  }
  AlignedBuffer buffer;
  if (best != spare_.rend()) {
    buffer = std::move(best->buffer);
    spare_.erase(std::next(best).base());
    spare_bytes_ -= buffer.capacity();
    buffer.resize(size);
  }
  while (!spare_.empty() && takes_ - spare_.front().since > kUnusedTakesMax) drop_oldest();
  return buffer;
}

void BufferPool::put_back(AlignedBuffer buffer) {
  const std::lock_guard lock(mutex_);
  spare_bytes_ += buffer.capacity();
  spare_.push_back({std::move(buffer), takes_});
  while (spare_bytes_ > spare_bytes_max_) drop_oldest();
}

void BufferPool::drop_oldest() {
  spare_bytes_ -= spare_.front().buffer.capacity();
  spare_.pop_front();
}

std::size_t BufferPool::spare_bytes() const {
  const std::lock_guard lock(mutex_);
  return spare_bytes_;
}

}  // namespace shale
