// When each session of a trace starts, in the file's order. Private to the room.
#pragma once

#include <memory>

#include "trace/random.h"
#include "trace/trace_reader.h"

namespace shale {

class SessionClock {
 public:
  // The options, the arrivals' file included, must hold.
  static Result<SessionClock> create(const TraceOptions& options);

  // The start of the next session, in seconds from the first one's; never goes back.
  Result<double> next();

 private:
  explicit SessionClock(const SessionOptions& options) : options_(options), random_(options.seed) {}

  SessionOptions options_;
  Random random_;
  std::unique_ptr<TraceReader> arrivals_;
  RawRequest arrival_;
  double last_s_ = 0;
  std::uint64_t started_ = 0;
};

}  // namespace shale
