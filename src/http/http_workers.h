// A few threads for work that the server's own must not wait for.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace shale {

// Thread-safe. Jobs are done in the order of their coming.
class HttpWorkers {
 public:
  using Job = std::move_only_function<void()>;

  explicit HttpWorkers(std::uint32_t threads);
  ~HttpWorkers();  // after all jobs

  void add(Job job);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<Job> jobs_;
  bool ending_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace shale
