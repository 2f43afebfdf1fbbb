// Manifests that were read lately, parsed: a load of what was just looked up needs no second read.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "codec/extent.h"

namespace shale {

// Thread-safe. Least recently used go first.
class ManifestCache {
 public:
  explicit ManifestCache(std::uint64_t bytes_max) : bytes_max_(bytes_max) {}

  std::shared_ptr<const ExtentManifest> get(const Hash128& name) {
    const std::lock_guard lock(mutex_);
    const auto known = by_name_.find(name);
    if (known == by_name_.end()) return nullptr;
    recent_.splice(recent_.begin(), recent_, known->second);
    return known->second->manifest;
  }

  // `bytes`: what it takes, about.
  void put(const Hash128& name, std::shared_ptr<const ExtentManifest> manifest, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (by_name_.contains(name)) return;
    recent_.push_front({name, std::move(manifest), bytes});
    by_name_[name] = recent_.begin();
    bytes_ += bytes;
    while (bytes_ > bytes_max_ && !recent_.empty()) {
      bytes_ -= recent_.back().bytes;
      by_name_.erase(recent_.back().name);
      recent_.pop_back();
    }
  }

 private:
  struct Known {
    Hash128 name;
    std::shared_ptr<const ExtentManifest> manifest;
    std::uint64_t bytes = 0;
  };
  const std::uint64_t bytes_max_;
  std::mutex mutex_;  // guards what follows
  std::list<Known> recent_;
  std::unordered_map<Hash128, std::list<Known>::iterator> by_name_;
  std::uint64_t bytes_ = 0;
};

}  // namespace shale
