#include "paging/device.h"

#include <sys/mman.h>

#include <cassert>
#include <cerrno>
#include <cstring>

#include "core/huge_pages.h"

namespace shale {

void DeviceMemory::copy_within(std::size_t from, std::size_t to, const Pieces& pieces) {
  if (pieces.count == 0) return;
  [[maybe_unused]] const std::size_t reach = (pieces.count - 1) * pieces.stride + pieces.bytes;
  assert(from + reach <= bytes_ && to + reach <= bytes_);
  copy_within_impl(from, to, pieces);
}

void DeviceMemory::copy_in(std::span<const std::byte> from, std::size_t to) {
  assert(to + from.size() <= bytes_);
  copy_in_impl(from, to);
}

void DeviceMemory::copy_out(std::size_t from, std::span<std::byte> to) const {
  assert(from + to.size() <= bytes_);
  copy_out_impl(from, to);
}

namespace {

class HostMemory final : public DeviceMemory {
 public:
  HostMemory(std::byte* begin, std::size_t bytes) : DeviceMemory(bytes), begin_(begin) {}
  ~HostMemory() override { munmap(begin_, bytes()); }

  std::byte* host_view() override { return begin_; }

 private:
  void copy_within_impl(std::size_t from, std::size_t to, const Pieces& pieces) override {
    for (std::size_t i = 0; i < pieces.count; ++i, from += pieces.stride, to += pieces.stride) {
      std::memmove(begin_ + to, begin_ + from, pieces.bytes);
    }
  }
  void copy_in_impl(std::span<const std::byte> from, std::size_t to) override {
    std::memcpy(begin_ + to, from.data(), from.size());
  }
  void copy_out_impl(std::size_t from, std::span<std::byte> to) const override {
    std::memcpy(to.data(), begin_ + from, to.size());
  }
  void fence_impl() const override {}

  std::byte* begin_;
};

}  // namespace

Result<std::unique_ptr<DeviceMemory>> HostDevice::allocate(std::size_t bytes) const {
  void* begin = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) {
    return fail(ErrorCode::kIo, "cannot reserve {} bytes of host memory: {}", bytes, std::strerror(errno));
  }
  prefer_huge_pages(begin, bytes);
  return std::make_unique<HostMemory>(static_cast<std::byte*>(begin), bytes);
}

}  // namespace shale
