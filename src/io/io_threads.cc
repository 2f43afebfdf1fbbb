#include "io/io_threads.h"

#include <sched.h>
#include <sys/resource.h>

#include <utility>

namespace shale {

void stand_back(StandBack how) {
  const sched_param none{};
  const int policy = how == StandBack::kForReads ? SCHED_BATCH : SCHED_IDLE;
  static_cast<void>(sched_setscheduler(0, policy, &none));  // 0: of this thread alone, on Linux
  static_cast<void>(setpriority(PRIO_PROCESS, 0, 19));
}

IoThreads::IoThreads(unsigned threads, StandBack how) {
  threads_.reserve(threads);
  for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this, how] { work(how); });
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

void IoThreads::work(StandBack how) {
  stand_back(how);
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
