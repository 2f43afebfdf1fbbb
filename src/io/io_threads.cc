#include "io/io_threads.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <utility>

namespace shale {
namespace {

// A thread's weight falls by a fifth with each step of nice, and is a tenth of the usual at 10.
int nice_of_a_tenth(unsigned threads) {
  const double steps = std::log(std::max(threads, 1u)) / std::log(1.25);
  return static_cast<int>(std::min(19.0, 10 + std::round(steps)));
}

}  // namespace

void stand_back(StandBack how, unsigned threads) {
  const sched_param none{};
  const int policy = how == StandBack::kForReads ? SCHED_BATCH : SCHED_IDLE;
  static_cast<void>(sched_setscheduler(0, policy, &none));  // 0: of this thread alone, on Linux
  static_cast<void>(setpriority(PRIO_PROCESS, 0, how == StandBack::kForReads ? nice_of_a_tenth(threads) : 19));
}

void block_broken_pipes() {
  sigset_t pipes;
  sigemptyset(&pipes);
  sigaddset(&pipes, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipes, nullptr);
}

IoThreads::IoThreads(unsigned threads, StandBack how) : how_(how), count_(threads) {
  threads_.reserve(threads);
  for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
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

void IoThreads::work() {
  stand_back(how_, count_);
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
