// Threads that sleep in system calls, for I/O that can only block.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <new>
#include <thread>
#include <type_traits>
#include <vector>

#include "core/error.h"

namespace shale {

// How far threads stand back from whoever computes on the same cores: copying or checking a blob takes a core from a
// step; its other threads spin meanwhile, and everybody who decodes waits.
enum class StandBack {
  // Somebody waits for it: SCHED_BATCH, which does not interrupt others when it wakes. All threads of a tier together
  // weigh a tenth of one that computes.
  kForReads,
  // Nobody does: SCHED_IDLE, a fiftieth.
  kForWrites,
};

// This thread, one of `threads` that do the same. Where that is refused, all are alike.
void stand_back(StandBack how, unsigned threads = 1);

// In this thread, writing where the other side has closed is an error and no signal. (TLS writes without MSG_NOSIGNAL.)
void block_broken_pipes();

// Calls `work`, which returns a Result, where no exception may leave a thread: `code` where memory is lacking.
template <class Work>
std::invoke_result_t<Work> no_memory_is_an_error(const Work& work, ErrorCode code = ErrorCode::kIo) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return fail(code, "there is no memory for what is being read or written");
  }
}

class IoThreads {
 public:
  IoThreads(unsigned threads, StandBack how);
  ~IoThreads();  // runs what is queued, then joins

  // Runs `job` on one of the threads; jobs start in order. Must not throw.
  void run(std::function<void()> job);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool closing_ = false;
  const StandBack how_;
  const unsigned count_;
  std::vector<std::jthread> threads_;
};

}  // namespace shale
