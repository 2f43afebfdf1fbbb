#include "report/output.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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

// Past stdio: whoever waited there for a reader would keep its lock from all others, exit() among them.
void print_error(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {
      pollfd reader{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
      poll(&reader, 1, -1);
      continue;
    }
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void print_note(const std::string& text) {
  std::fflush(stdout);  // where both go to one place, in the order in which they were said
  print_error(text + "\n");
}

Progress::Progress(const OutputOptions& options, std::string what)
    : what_(std::move(what)),
      terminal_(isatty(STDERR_FILENO) == 1),
      enabled_(terminal_ || options.progress),
      print_(options.print),
      next_(std::chrono::steady_clock::now() + kFirst) {}

Progress::~Progress() {
  if (shown_ && terminal_) print_("\r\x1b[K");
}

void Progress::operator()(std::size_t done, std::size_t total) {
  const Time now = std::chrono::steady_clock::now();
  if (!enabled_ || now < next_) return;
  next_ = now + (terminal_ ? kRedraw : kRepeat);
  shown_ = true;
  const std::string line = total ? fmt::format("{} {}", what_, bar(done, total)) : fmt::format("{} {}", what_, done);
  print_(terminal_ ? "\r\x1b[K" + line : line + "\n");
}

}  // namespace shale
