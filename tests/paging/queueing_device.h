// A device whose memory the CPU cannot address and whose copies wait for a fence: who goes around the pool, or forgets
// the fence, does not get its bytes.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "paging/device.h"

namespace shale {

class QueueingMemory final : public DeviceMemory {
 public:
  explicit QueueingMemory(std::size_t bytes) : DeviceMemory(bytes), bytes_(bytes) {}
  ~QueueingMemory() override { fence(); }

 private:
  void copy_within_impl(std::size_t from, std::size_t to, const Pieces& pieces) override {
    queue([this, from, to, pieces] {
      for (std::size_t i = 0; i < pieces.count; ++i) {
        std::memmove(&bytes_[to + i * pieces.stride], &bytes_[from + i * pieces.stride], pieces.bytes);
      }
    });
  }
  void copy_in_impl(std::span<const std::byte> from, std::size_t to) override {
    queue([this, from, to] { std::memcpy(&bytes_[to], from.data(), from.size()); });
  }
  void copy_out_impl(std::size_t from, std::span<std::byte> to) const override {
    queue([this, from, to] { std::memcpy(to.data(), &bytes_[from], to.size()); });
  }
  void fence_impl() const override {
    const std::scoped_lock lock(mutex_);
    for (const auto& copy : std::exchange(copies_, {})) copy();
  }
  void queue(std::function<void()> copy) const {
    const std::scoped_lock lock(mutex_);
    copies_.push_back(std::move(copy));
  }

  std::vector<std::byte> bytes_;
  mutable std::mutex mutex_;
  mutable std::vector<std::function<void()>> copies_;
};

class QueueingDevice final : public Device {
 public:
  std::string_view name() const override { return "queueing"; }
  Result<std::unique_ptr<DeviceMemory>> allocate(std::size_t bytes) const override {
    return std::make_unique<QueueingMemory>(bytes);
  }
};

}  // namespace shale
