#include "http/http_workers.h"

#include <utility>

namespace shale {

HttpWorkers::HttpWorkers(std::uint32_t threads) {
  for (std::uint32_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

HttpWorkers::~HttpWorkers() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  news_.notify_all();
  threads_.clear();
}

void HttpWorkers::add(Job job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  news_.notify_one();
}

void HttpWorkers::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    news_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
  }
}

}  // namespace shale
