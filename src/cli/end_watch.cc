#include "cli/end_watch.h"

#include <unistd.h>

#include <chrono>
#include <utility>

namespace shale {

void EndWatch::arm(double seconds, std::string message, int status) {
  thread_ = std::jthread([this, seconds, status, message = std::move(message)](const std::stop_token& ended) {
    std::unique_lock lock(mutex_);
    never_.wait_for(lock, ended, std::chrono::duration<double>(seconds), [] { return false; });
    if (ended.stop_requested()) return;
    print_(message);
    _exit(status);
  });
}

}  // namespace shale
