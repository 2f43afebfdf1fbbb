#include "server/request_log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cmath>

#include "core/clock.h"
#include "core/utf8.h"
#include "server/answer_json.h"

namespace shale {
namespace {

std::string time_text(double wall_s) {
  const double whole = std::floor(wall_s);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(whole)),
                     static_cast<int>(1000 * (wall_s - whole)));
}

// Messages tell of what clients and tiers' servers sent; no longer than they are read.
constexpr std::size_t kWhyBytes = 300, kNoteBytes = 1000;

std::string_view level_text(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return "error";
    case LogLevel::kWarn:
      return "warn";
    default:
      return "info";
  }
}

}  // namespace

std::string text_line(const RequestEnd& end, double wall_s) {
  std::string line = fmt::format("{} {}", time_text(wall_s), end.id.empty() ? "-" : end.id);
  if (!end.tenant.empty()) line += fmt::format(" {}", end.tenant);
  line += fmt::format(" {} {}", end.status, end.outcome);
  if (!end.peer.empty()) line += fmt::format(" from {}", end.peer);
  if (!end.why.empty()) line += fmt::format(" ({})", printable(end.why, kWhyBytes));
  if (const AnswerUsage* usage = end.usage) {
    line += fmt::format(": {} tokens, computed {}", usage->prompt_tokens, usage->computed_tokens);
    for (const auto& [source, tokens] : usage->cached.sources()) {
      if (tokens > 0) line += fmt::format(", {} {}", source, tokens);
    }
    if (usage->lossy) line += ", lossy";
    line += usage->choices > 1 ? fmt::format("; {} choices, together", usage->choices) : "; answer";
    line += fmt::format(" {}, first after {:.3f} s, then {:.3f} s each, {:.3f} s at most", usage->completion_tokens,
                        usage->ttft_seconds, usage->tpot_seconds, usage->longest_gap_seconds);
  }
  return line + fmt::format("; {:.3f} s", end.seconds);
}

std::string json_line(const RequestEnd& end, double wall_s) {
  const auto named = [](std::string_view text) { return text.empty() ? Json() : Json(text); };
  Json line = {{"time", time_text(wall_s)}, {"level", level_text(level_of(end))},
               {"request", named(end.id)},  {"tenant", named(end.tenant)},
               {"peer", named(end.peer)},   {"status", end.status},
               {"outcome", end.outcome},    {"why", named(printable(end.why, kWhyBytes))},
               {"seconds", end.seconds}};
  if (const AnswerUsage* usage = end.usage) {
    if (usage->choices > 1) line["choices"] = usage->choices;
    line["usage"] = usage_json(*usage);
    line["queue_seconds"] = usage->queue_seconds;
    line["ttft_seconds"] = usage->ttft_seconds;
    line["tpot_seconds"] = usage->tpot_seconds;
    line["longest_gap_seconds"] = usage->longest_gap_seconds;
  }
  return dump(line);
}

LogLevel level_of(const RequestEnd& end) {
  constexpr int kClientGone = 499;
  if (end.status >= 500 || end.failed) return LogLevel::kError;
  return (end.status >= 400 && end.status != kClientGone) || !end.why.empty() ? LogLevel::kWarn : LogLevel::kInfo;
}

void RequestLog::add(const RequestEnd& end) {
  if (level_of(end) > level_) return;
  const double now_s = wall_clock_s();
  write((form_ == Form::kText ? text_line(end, now_s) : json_line(end, now_s)) + '\n');
}

void RequestLog::note(LogLevel level, std::string_view text) {
  if (level <= level_) write(note_line(form_, level, text));
}

std::string note_line(RequestLog::Form form, LogLevel level, std::string_view text) {
  const std::string time = time_text(wall_clock_s()), line = printable(text, kNoteBytes);
  return (form == RequestLog::Form::kText ? fmt::format("{} {}: {}", time, level_text(level), line)
                                          : dump({{"time", time}, {"level", level_text(level)}, {"message", line}})) +
         '\n';
}

void RequestLog::write(std::string_view line) {
  const std::lock_guard lock(mutex_);
  write_(line);
}

}  // namespace shale
