#include "sim/sweep.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace shale {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(50);

class Sweep {
 public:
  explicit Sweep(std::span<const SweepRun> runs) : runs_(runs), results_(runs.size()) {}

  // A worker's life: the next run that nobody has begun, until none is left or the sweep is stopped.
  void work() {
    for (;;) {
      std::size_t run;
      {
        const std::scoped_lock lock(mutex_);
        if (begun_ == runs_.size() || stop_.stop_requested()) return;
        run = begun_++;
      }
      Result<SimulationResult> result = simulate(*runs_[run].trace, runs_[run].options, stop_.get_token());
      const std::scoped_lock lock(mutex_);
      results_[run] = std::move(result);
      ++done_;
      changed_.notify_one();
    }
  }

  Status deliver(const SweepEvents& events) {
    std::unique_lock lock(mutex_);
    for (std::size_t told = 0;;) {
      changed_.wait_for(lock, kPoll, [&] { return told < begun_ && results_[told].has_value(); });
      for (; told < begun_ && results_[told]; ++told) {
        const Result<SimulationResult> result = std::move(*results_[told]);
        lock.unlock();
        Status status = result ? events.on_result(told, *result) : std::unexpected(result.error());
        if (!status) {
          stop_.request_stop();
          return status;
        }
        lock.lock();
      }
      if (told == runs_.size() || (stop_.stop_requested() && told == begun_)) return {};
      if (!events.keep_going(done_)) stop_.request_stop();
    }
  }

 private:
  std::span<const SweepRun> runs_;
  std::stop_source stop_;
  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::vector<std::optional<Result<SimulationResult>>> results_;
  std::size_t begun_ = 0, done_ = 0;
};

}  // namespace

Status sweep(std::span<const SweepRun> runs, std::size_t threads, const SweepEvents& events) {
  Sweep sweep(runs);
  std::vector<std::jthread> workers;  // joined before the sweep they work on goes
  for (std::size_t i = 0; i < std::min(std::max<std::size_t>(threads, 1), runs.size()); ++i) {
    workers.emplace_back([&sweep] { sweep.work(); });
  }
  return sweep.deliver(events);
}

}  // namespace shale
