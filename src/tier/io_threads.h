// Threads that sleep in system calls, for I/O that can only block.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace shale {

class IoThreads {
 public:
  explicit IoThreads(unsigned threads);
  ~IoThreads();  // runs what is queued, then joins

  // Runs `job` on one of the threads; jobs start in order. Must not throw.
  void run(std::function<void()> job);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool closing_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace shale
