// A tier around another one that changes how its operations go, not what is stored. Derive from it and override the
// `…_impl` functions that differ.
#pragma once

#include <memory>
#include <utility>

#include "tier/tier.h"

namespace shale {

// The tier inside accounts for room; the wrapper counts and measures operations as they look from outside.
class TierWrapper : public Tier {
 public:
  std::uint64_t capacity_bytes() const override { return inner_->capacity_bytes(); }
  std::uint64_t used_bytes() const override { return inner_->used_bytes(); }
  std::uint64_t stored_bytes(std::uint64_t bytes) const override { return inner_->stored_bytes(bytes); }
  std::string emulated() const override { return inner_->emulated(); }
  Status reachable() const override { return inner_->reachable(); }
  bool counting() const override { return inner_->counting(); }
  bool persistent() const override { return inner_->persistent(); }
  bool read_only() const override { return inner_->read_only(); }
  void count_others(std::int64_t bytes) override { inner_->count_others(bytes); }
  bool count_again() override { return inner_->count_again(); }
  std::string describe() const override { return inner_->describe(); }
  double untouched_s(const BlobId& id) const override { return inner_->untouched_s(id); }
  AskedAtOnce asked_at_once() const override { return inner_->asked_at_once(); }
  std::optional<BreakerState> breaker() const override { return inner_->breaker(); }

 protected:
  TierWrapper(std::unique_ptr<Tier>&& inner, const TierSpeed& first_guess, const Clock& clock)
      : Tier({inner->name(), kUnlimited, first_guess}, clock), inner_(std::move(inner)) {}

  Tier& inner() { return *inner_; }
  const Tier& inner() const { return *inner_; }

  Result<std::uint64_t> remove_impl(const BlobId& id) override {
    const std::uint64_t bytes = inner_->blob_bytes(id);
    SHALE_TRY(inner_->remove(id));
    return bytes;
  }
  Result<std::vector<BlobId>> list_impl() const override { return inner_->list(); }
  Result<std::vector<std::uint32_t>> parts_impl(const Hash128& object) const override { return inner_->parts(object); }
  Result<std::vector<std::vector<std::uint32_t>>> parts_of_impl(std::span<const Hash128> objects) const override {
    return inner_->parts_of(objects);
  }
  std::uint64_t blob_bytes_impl(const BlobId& id) const override { return inner_->blob_bytes(id); }

 private:
  std::unique_ptr<Tier> inner_;
};

}  // namespace shale
