// Writes lines for those who must not wait for whoever reads them: a pipe that nobody empties, a terminal that stands
// still.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace shale {

// Thread-safe.
class BackgroundWriter {
 public:
  static constexpr std::size_t kBytesMax = std::size_t{1} << 20;  // that wait to be written

  // `write` is called by a thread of its own, with one or more lines; it may block for ever. `left_out` makes the line
  // that comes in the place of so many for which there was no room, or no time.
  BackgroundWriter(std::function<void(std::string_view lines)> write,
                   std::function<std::string(std::uint64_t lines)> left_out);
  // Finishes. A thread that is still stuck then is left to itself, with `write`.
  ~BackgroundWriter();

  // In the order of the calls. False where there is no room for it: it is left out.
  bool add(std::string_view line);
  // Before the process ends: returns when all that was added is written, or after a second. Shortly before, what still
  // waits is left out, so that whoever reads slowly is told of it.
  void finish();

 private:
  struct State;
  std::shared_ptr<State> state_;  // the thread's, too, which may outlive its owner
};

}  // namespace shale
