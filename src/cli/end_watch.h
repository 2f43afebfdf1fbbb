// A bound on how long a process takes to come to its end.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace shale {

// Ends the process where it does not come to its own end: threads that a storage holds inside the system cannot be told
// to go. Files are as after a kill, which all that is stored survives.
class EndWatch {
 public:
  // `print` must return soon.
  explicit EndWatch(std::function<void(const std::string&)> print) : print_(std::move(print)) {}

  // Prints the message and exits the process where this is not destroyed within so long from now. Called again, it
  // forgets what came before.
  void arm(double seconds, std::string message, int status = 1);

 private:
  std::function<void(const std::string&)> print_;
  std::mutex mutex_;
  std::condition_variable_any never_;
  std::jthread thread_;
};

}  // namespace shale
