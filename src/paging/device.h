// Where a pool's bytes lie. The pool reaches them through this interface alone, so that a pool in another device's
// memory is another constructor argument, and host memory the tier below it.
//
//   Device ── allocates ──> DeviceMemory <── owns ── PagePool
//
// Copies are carried out in the order in which one thread asks for them, at once or later: `fence` waits. Bytes on the
// host's side belong to the memory until then. Several threads may ask at once for copies that do not touch the same
// bytes.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "core/error.h"

namespace shale {

// `count` pieces of `bytes` bytes that begin `stride` bytes apart, in the source as in the target.
struct Pieces {
  std::size_t bytes = 0;
  std::size_t count = 1;
  std::size_t stride = 0;
};

// Addressed by bytes from its begin. Freed when destroyed, after the copies that were asked for.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  std::size_t bytes() const { return bytes_; }

  // A piece may overlap the one that it is copied to, but no other of them.
  void copy_within(std::size_t from, std::size_t to, const Pieces& pieces);
  void copy_in(std::span<const std::byte> from, std::size_t to);
  void copy_out(std::size_t from, std::span<std::byte> to) const;
  // Returns when every copy that was asked for before is done.
  void fence() const { fence_impl(); }

  // The first byte where the CPU may read and write this memory itself, and every copy is done when its call returns;
  // null elsewhere.
  virtual std::byte* host_view() { return nullptr; }

 protected:
  explicit DeviceMemory(std::size_t bytes) : bytes_(bytes) {}

 private:
  virtual void copy_within_impl(std::size_t from, std::size_t to, const Pieces& pieces) = 0;
  virtual void copy_in_impl(std::span<const std::byte> from, std::size_t to) = 0;
  virtual void copy_out_impl(std::size_t from, std::span<std::byte> to) const = 0;
  virtual void fence_impl() const = 0;

  std::size_t bytes_;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;
  // Contents are undefined. kIo where the device has no such room. The memory may outlive the device.
  virtual Result<std::unique_ptr<DeviceMemory>> allocate(std::size_t bytes) const = 0;
};

// The host's own memory, in huge pages where it has them; touched on first use.
class HostDevice final : public Device {
 public:
  std::string_view name() const override { return "host"; }
  Result<std::unique_ptr<DeviceMemory>> allocate(std::size_t bytes) const override;
};

}  // namespace shale
