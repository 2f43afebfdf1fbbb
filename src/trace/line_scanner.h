// Reads a line of plain text or CSV from left to right, every error with its place. Private to the room.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "trace/line_source.h"

namespace shale {

class LineScanner {
 public:
  explicit LineScanner(const LineSource& lines) : lines_(&lines), at_(lines.line().data()) {}

  const char* at() const { return at_; }
  bool at_end() const { return at_ == end(); }

  void skip_blanks() {
    while (!at_end() && (*at_ == ' ' || *at_ == '\t')) ++at_;
  }
  bool accept(std::string_view text) {
    if (!std::string_view(at_, end()).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  // `what` names it in the error: "a comma".
  Status expect(std::string_view text, std::string_view what) {
    if (accept(text)) return {};
    return lines_->fail_at(at_, "{} is expected", what);
  }

  // A whole number from `min` to `max`.
  template <class Integer>
  Status integer(Integer& out, std::string_view what, Integer min = 0,
                 Integer max = std::numeric_limits<Integer>::max()) {
    Integer number = 0;
    const auto [stop, error] = std::from_chars(at_, end(), number);
    if (error != std::errc() || number < min || number > max) {
      return lines_->fail_at(at_, "{} is expected, a whole number from {} to {}", what, min, max);
    }
    at_ = stop;
    out = number;
    return {};
  }
  // A finite number of at least 0.
  Status real(double& out, std::string_view what) {
    double number = 0;
    const auto [stop, error] = std::from_chars(at_, end(), number);
    if (error != std::errc() || !std::isfinite(number) || number < 0) {
      return lines_->fail_at(at_, "{} is expected, a number of at least 0", what);
    }
    at_ = stop;
    out = number;
    return {};
  }

 private:
  const char* end() const { return lines_->line().data() + lines_->line().size(); }

  const LineSource* lines_;
  const char* at_;
};

}  // namespace shale
