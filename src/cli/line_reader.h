// Lines that somebody types at a terminal: edited, and found again with the arrow keys and Ctrl-R, where the program
// was built with libedit (SHALE_LIBEDIT) and the terminal is one to edit at; else as the terminal hands them over.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace shale {

// Whether a key, or the end of the input, waits on standard input, now or within so long.
bool typed(int within_ms = 0);

// One at a time: the terminal is the process's. Ctrl-Z suspends the program with the terminal as it was found.
class LineReader {
 public:
  // Does a piece of other work; called again and again until there is a key.
  using Idle = std::function<void()>;

  // Lines are kept in `history`, mode 0600; in memory alone where that is empty or cannot be written. Plain lines are
  // not kept at all.
  static std::unique_ptr<LineReader> make(std::filesystem::path history, Idle idle);
  virtual ~LineReader() = default;

  // Nothing at the end of the input, which Ctrl-D is, too. Nothing as well once interrupted(): the line that was being
  // typed is lost.
  virtual std::optional<std::string> next() = 0;
};

}  // namespace shale
