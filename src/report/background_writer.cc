#include "report/background_writer.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace shale {

struct BackgroundWriter::State {
  std::function<void(std::string_view)> write;
  std::mutex mutex;  // guards what follows
  std::condition_variable added, written;
  std::string waiting;
  std::size_t bytes = 0;  // of what waits and what is being written
  bool ending = false;

  void run();
};

void BackgroundWriter::State::run() {
  std::unique_lock lock(mutex);
  while (true) {
    added.wait(lock, [this] { return !waiting.empty() || ending; });
    if (waiting.empty()) return;
    const std::string lines = std::exchange(waiting, {});
    lock.unlock();
    write(lines);
    lock.lock();
    bytes -= lines.size();
    written.notify_all();
  }
}

BackgroundWriter::BackgroundWriter(std::function<void(std::string_view)> write) : state_(std::make_shared<State>()) {
  state_->write = std::move(write);
  std::thread([state = state_] { state->run(); }).detach();
}

BackgroundWriter::~BackgroundWriter() {
  flush();
  const std::lock_guard lock(state_->mutex);
  state_->ending = true;
  state_->added.notify_one();
}

bool BackgroundWriter::add(std::string_view line) {
  const std::lock_guard lock(state_->mutex);
  if (line.size() > kBytesMax - state_->bytes) return false;
  state_->waiting += line;
  state_->bytes += line.size();
  state_->added.notify_one();
  return true;
}

void BackgroundWriter::flush() {
  std::unique_lock lock(state_->mutex);
  state_->written.wait_for(lock, std::chrono::seconds(1), [this] { return state_->bytes == 0; });
}

}  // namespace shale
