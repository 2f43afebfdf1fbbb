// Lines that somebody types at a terminal: edited, and found again with the arrow keys and Ctrl-R, where the program
// was built with libedit; else as the terminal hands them over.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace shale {

// One at a time: the terminal is the process's.
class LineReader {
 public:
  // Lines are kept in `history`, mode 0600; in memory alone where that is empty or cannot be written. `wait` is called
  // whenever a key is needed, with whether a line has begun, and returns when there is one or interrupted().
  using Wait = std::function<void(bool begun)>;
  LineReader(std::filesystem::path history, Wait wait);
  ~LineReader();

  // Nothing at the end of the input, which Ctrl-D is, too. Nothing as well once interrupted(): the line that was being
  // typed is lost.
  std::optional<std::string> next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace shale
