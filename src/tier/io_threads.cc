#include "tier/io_threads.h"

#include <sched.h>
#include <sys/resource.h>

#include <utility>

namespace shale {

void stand_back(int nice) {
  const sched_param none{};
  static_cast<void>(sched_setscheduler(0, SCHED_BATCH, &none));  // 0: of this thread alone, on Linux
  static_cast<void>(setpriority(PRIO_PROCESS, 0, nice));
}

IoThreads::IoThreads(unsigned threads, int nice) {
  threads_.reserve(threads);
  for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this, nice] { work(nice); });
}

IoThreads::~IoThreads() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
}

void IoThreads::run(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

void IoThreads::work(int nice) {
  stand_back(nice);
  for (;;) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return closing_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace shale
