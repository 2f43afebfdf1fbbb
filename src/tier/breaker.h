// A circuit breaker: what does not answer is left alone for a while, so that nobody waits for it again and again.
//
//   closed ──N failures in a row──> open ──pause──> half open, one operation is let through as a probe
//      ^                              ^                 │
//      └───────── it answers ─────────┼─────────────────┤
//                                     └── pause doubles ┘  it does not
//
// Every tier behind a network has one. The same idea: M. Nygard, Release It!, "Circuit Breaker".
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "core/clock.h"
#include "core/error.h"

namespace shale {

struct BreakerState {
  enum class Kind : std::uint8_t { kClosed, kHalfOpen, kOpen };
  Kind kind = Kind::kClosed;
  std::uint64_t opened = 0, refused = 0, failures = 0;  // so far
};

// Thread-safe.
class Breaker {
 public:
  struct Options {
    unsigned failures_in_row = 3;
    double pause_s = 0.5, pause_s_max = 30;
  };
  Breaker(const Options& options, const Clock& clock) : options_(options), clock_(clock), pause_s_(options.pause_s) {}

  // How often it had opened when an operation was let in.
  using Ticket = std::uint64_t;

  // Whether an operation may start: kBusy, at once, while it is open, with what it opened for. Whoever was let in tells
  // how it ended by one call of `ended`.
  Result<Ticket> admit();
  // Only kIo is a failure: a tier that says that something is not there, or that there is no room, answers. kCancelled
  // says nothing, nor does kBusy, which refused the operation further down, nor a failure of what was let in before it
  // last opened, which is why it did.
  void ended(Ticket ticket, const Status& status);

  BreakerState state() const;
  // What it opened for; nothing while it is closed.
  std::optional<Error> trouble() const;

 private:
  void open();

  const Options options_;
  const Clock& clock_;
  mutable std::mutex mutex_;  // guards what follows
  BreakerState state_;
  unsigned in_row_ = 0;
  double pause_s_;         // the next one
  double probe_at_s_ = 0;  // while open
  Error last_;             // failure
};

}  // namespace shale
