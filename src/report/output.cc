#include "report/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace shale {
namespace {

constexpr std::size_t kBarWidth = 24;
constexpr auto kFirst = std::chrono::milliseconds(1000);
constexpr auto kRedraw = std::chrono::milliseconds(100), kRepeat = std::chrono::milliseconds(1000);

std::string bar(std::size_t done, std::size_t total) {
  const std::size_t filled = std::min(done, total) * kBarWidth / total;
  return fmt::format("[{:#<{}}{:.<{}}] {}/{}", "", filled, "", kBarWidth - filled, done, total);
}

}  // namespace

void print_json(const Json& object) {
  fmt::print("{}\n", object.dump(-1, ' ', false, Json::error_handler_t::replace));
  std::fflush(stdout);
}

void print_error(std::string_view text) { (void)std::fwrite(text.data(), 1, text.size(), stderr); }

void print_note(const std::string& text) {
  std::fflush(stdout);  // where both go to one place, in the order in which they were said
  print_error(text + "\n");
}

Progress::Progress(const OutputOptions& options, std::string what)
    : what_(std::move(what)),
      terminal_(isatty(STDERR_FILENO) == 1),
      enabled_(terminal_ || options.progress),
      next_(std::chrono::steady_clock::now() + kFirst) {}

Progress::~Progress() {
  if (shown_ && terminal_) print_error("\r\x1b[K");
}

void Progress::operator()(std::size_t done, std::size_t total) {
  const Time now = std::chrono::steady_clock::now();
  if (!enabled_ || now < next_) return;
  next_ = now + (terminal_ ? kRedraw : kRepeat);
  shown_ = true;
  const std::string line = total ? fmt::format("{} {}", what_, bar(done, total)) : fmt::format("{} {}", what_, done);
  print_error(terminal_ ? "\r\x1b[K" + line : line + "\n");
}

}  // namespace shale
