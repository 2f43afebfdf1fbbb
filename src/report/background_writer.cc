#include "report/background_writer.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace shale {
namespace {

constexpr std::size_t kBytesAtOnce = 4096;  // a pipe takes so many whole or not at all
constexpr std::chrono::milliseconds kForAll{800}, kForTheLast{200};

}  // namespace

struct BackgroundWriter::State {
  struct Line {
    std::string text;
    std::uint64_t stands_for = 1;  // lines: itself, or those that were left out
  };

  std::function<void(std::string_view)> write;
  std::function<std::string(std::uint64_t)> left_out_line;
  std::mutex mutex;  // guards what follows
  std::condition_variable added, written;
  std::deque<Line> waiting;
  std::size_t bytes = 0;       // of what waits and what is being written
  std::uint64_t left_out = 0;  // and not told
  bool ending = false;

  void run();
  std::string take();
  void put(Line line);
  void leave_out_what_waits();
};

void BackgroundWriter::State::run() {
  std::unique_lock lock(mutex);
  while (true) {
    added.wait(lock, [this] { return !waiting.empty() || ending; });
    if (waiting.empty()) return;
    const std::string lines = take();
    lock.unlock();
    write(lines);
    lock.lock();
    bytes -= lines.size();
    written.notify_all();
  }
}

// One or more lines.
std::string BackgroundWriter::State::take() {
  std::string lines;
  while (!waiting.empty() && (lines.empty() || lines.size() + waiting.front().text.size() <= kBytesAtOnce)) {
    lines += waiting.front().text;
    waiting.pop_front();
  }
  return lines;
}

void BackgroundWriter::State::put(Line line) {
  bytes += line.text.size();
  waiting.push_back(std::move(line));
  added.notify_one();
}

void BackgroundWriter::State::leave_out_what_waits() {
  for (const Line& line : std::exchange(waiting, {})) {
    bytes -= line.text.size();
    left_out += line.stands_for;
  }
  if (left_out > 0) put({left_out_line(left_out), left_out});
  left_out = 0;
}

BackgroundWriter::BackgroundWriter(std::function<void(std::string_view)> write,
                                   std::function<std::string(std::uint64_t)> left_out)
    : state_(std::make_shared<State>()) {
  state_->write = std::move(write);
  state_->left_out_line = std::move(left_out);
  std::thread([state = state_] { state->run(); }).detach();
}

BackgroundWriter::~BackgroundWriter() {
  finish();
  const std::lock_guard lock(state_->mutex);
  state_->ending = true;
  state_->added.notify_one();
}

bool BackgroundWriter::add(std::string_view line) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  std::string told = s.left_out > 0 ? s.left_out_line(s.left_out) : "";
  if (told.size() + line.size() > kBytesMax - s.bytes) {
    ++s.left_out;
    return false;
  }
  if (s.left_out > 0) s.put({std::move(told), std::exchange(s.left_out, 0)});
  s.put({std::string(line)});
  return true;
}

void BackgroundWriter::finish() {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  const auto all_written = [&s] { return s.bytes == 0; };
  s.written.wait_for(lock, kForAll, all_written);
  s.leave_out_what_waits();
  s.written.wait_for(lock, kForTheLast, all_written);
}

}  // namespace shale
