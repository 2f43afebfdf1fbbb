// Manifests that were read lately, parsed: a load of what was just looked up needs no second read.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "codec/extent.h"
#include "core/lru_map.h"

namespace shale {

// Thread-safe. Least recently used go first.
class ManifestCache {
 public:
  explicit ManifestCache(std::uint64_t bytes_max) : bytes_max_(bytes_max) {}

  std::shared_ptr<const ExtentManifest> get(const Hash128& name) {
    const std::lock_guard lock(mutex_);
    return known_.find(name) ? known_.touch(name).manifest : nullptr;
  }

  // `bytes`: what it takes, about.
  void put(const Hash128& name, std::shared_ptr<const ExtentManifest> manifest, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (known_.find(name)) return;
    known_.touch(name, std::move(manifest), bytes);
    bytes_ += bytes;
    while (bytes_ > bytes_max_ && known_.size() > 0) {
      bytes_ -= known_.oldest().second.bytes;
      known_.erase_oldest();
    }
  }

 private:
  struct Known {
    std::shared_ptr<const ExtentManifest> manifest;
    std::uint64_t bytes = 0;
  };
  const std::uint64_t bytes_max_;
  std::mutex mutex_;  // guards what follows
  LruMap<Hash128, Known> known_;
  std::uint64_t bytes_ = 0;
};

}  // namespace shale
