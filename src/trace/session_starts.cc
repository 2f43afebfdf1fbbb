#include "trace/session_starts.h"

namespace shale {

Result<SessionClock> SessionClock::create(const TraceOptions& options) {
  SessionClock clock(options.sessions);
  if (options.sessions.starts == SessionStarts::kPoisson && !(options.sessions.sessions_per_s > 0)) {
    return fail(ErrorCode::kInvalidArgument, "sessions start at a rate above 0 a second");
  }
  if (options.sessions.starts == SessionStarts::kArrivals) {
    TraceOptions of_arrivals = options;
    of_arrivals.block_tokens = 0;
    of_arrivals.sort = false;
    of_arrivals.sessions = {};
    SHALE_ASSIGN(clock.arrivals_, open_trace(options.sessions.arrivals, of_arrivals));
  }
  return clock;
}

Result<double> SessionClock::next() {
  const bool is_first = started_++ == 0;
  if (options_.starts == SessionStarts::kPoisson && !is_first) {
    last_s_ += random_.exponential(1 / options_.sessions_per_s);
  }
  if (options_.starts == SessionStarts::kArrivals) {
    SHALE_ASSIGN(const bool more, arrivals_->next(arrival_));
    if (!more) {
      return fail(ErrorCode::kInvalidArgument,
                  "{} has only {} arrivals, fewer than there are sessions; name a longer trace",
                  options_.arrivals.string(), started_ - 1);
    }
    last_s_ = arrival_.arrival_s;
  }
  return last_s_;
}

}  // namespace shale
