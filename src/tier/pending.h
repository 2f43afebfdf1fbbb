// Operations that some other thread completes, and operations that were complete when they were asked for.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "tier/tier.h"

namespace shale {

// A result that one thread sets once and another waits for.
template <class T>
class Promise {
 public:
  void set(Result<T> result, double seconds) {
    {
      const std::lock_guard lock(mutex_);
      result_ = std::move(result);
      seconds_ = seconds;
    }
    done_.notify_all();
  }
  bool ready() const {
    const std::lock_guard lock(mutex_);
    return result_.has_value();
  }
  Result<T>& wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return result_.has_value(); });
    return *result_;
  }
  // `other` while there is no result, or an error.
  T value_or(T other) const {
    const std::lock_guard lock(mutex_);
    return result_ ? result_->value_or(std::move(other)) : other;
  }
  double seconds() const {
    const std::lock_guard lock(mutex_);
    return seconds_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable done_;
  std::optional<Result<T>> result_;
  double seconds_ = 0;
};

class PendingRead final : public TierRead {
 public:
  explicit PendingRead(std::uint64_t first_byte = 0) : first_byte_(first_byte) {}
  bool ready() const override { return promise_.ready(); }
  Result<BlobBytes> take() override { return std::move(promise_.wait()); }
  double seconds() const override { return promise_.seconds(); }
  std::uint64_t first_byte() const override { return first_byte_; }
  void complete(Result<BlobBytes> result, double seconds) { promise_.set(std::move(result), seconds); }

 private:
  const std::uint64_t first_byte_;
  Promise<BlobBytes> promise_;
};

class PendingWrite final : public TierWrite {
 public:
  bool ready() const override { return promise_.ready(); }
  Status wait() override {
    Result<bool>& created = promise_.wait();
    return created ? Status() : std::unexpected(created.error());
  }
  bool created() const override { return promise_.value_or(false); }
  double seconds() const override { return promise_.seconds(); }
  // `created`: false when the blob was there already.
  void complete(Result<bool> created, double seconds) { promise_.set(std::move(created), seconds); }

 private:
  Promise<bool> promise_;
};

inline std::shared_ptr<TierWrite> finished_tier_write(Result<bool> created) {
  auto write = std::make_shared<PendingWrite>();
  write->complete(std::move(created), 0);
  return write;
}

}  // namespace shale
