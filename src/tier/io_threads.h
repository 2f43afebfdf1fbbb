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

// Calls `work`, which returns a Result, where no exception may leave a thread: kIo where memory is lacking.
template <class Work>
std::invoke_result_t<Work> no_memory_is_an_error(const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kIo, "there is no memory for a blob that is being read or written");
  }
}

class IoThreads {
 public:
  // `nice`: how far they stand back from whoever computes on the same cores (setpriority(2)); 0: not at all.
  explicit IoThreads(unsigned threads, int nice = 0);
  ~IoThreads();  // runs what is queued, then joins

  // Runs `job` on one of the threads; jobs start in order. Must not throw.
  void run(std::function<void()> job);

 private:
  void work(int nice);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool closing_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace shale
