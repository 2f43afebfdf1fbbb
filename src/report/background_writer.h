// Writes lines for those who must not wait for whoever reads them: a pipe that nobody empties, a terminal that stands
// still.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

namespace shale {

// Thread-safe.
class BackgroundWriter {
 public:
  static constexpr std::size_t kBytesMax = std::size_t{1} << 20;  // that wait to be written

  // `write` is called by a thread of its own, with one or more lines; it may block for ever.
  explicit BackgroundWriter(std::function<void(std::string_view lines)> write);
  // Flushes. A thread that is still stuck then is left to itself, with `write`.
  ~BackgroundWriter();

  // In the order of the calls. False where there is no room for it.
  bool add(std::string_view line);
  // Returns when all that was added is written, or after a second.
  void flush();

 private:
  struct State;
  std::shared_ptr<State> state_;  // the thread's, too, which may outlive its owner
};

}  // namespace shale
