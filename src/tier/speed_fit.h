// Latency and bandwidth from the operations that happen anyway.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace shale {

// Fits seconds = latency + bytes / bandwidth to recent work of one direction of one tier, waiting left out.
//
// The tier is taken for a pipe behind a delay: transfers pass one after the other, latencies overlap. So an operation
// holds the pipe until `latency` before its end. One that starts later than that found the pipe free; one that starts
// earlier waited, and belongs to the same *busy period*. A sample is a busy period, from the start of its first
// operation to the end of its last, and its bytes: the fit says what loading that many bytes costs, not how long each
// of them queued, nor how long the pipe lay idle while an answer was on its way. A period that does not end is cut at a
// second; what follows has no latency of its own, and is given it.
//
// Operations may be reported long after they ended, in any order (nobody acts at the moment when an emulated one is
// due): they are sorted by their starts once none is in flight, or once many have gathered.
//
// Small (up to 1 MiB) and large periods are kept apart, the latest 32 of each, so that a long run of one size does not
// forget the other, without which latency and bandwidth cannot be told apart. The slope is the weighted median of the
// slopes between pairs that differ at least twofold in bytes (Theil-Sen, weighted by the difference: Sen, 1968;
// Jaeckel, 1972), the latency the median residual of the small ones: up to a quarter of the samples may be
// arbitrarily wrong. Periods below 128 KiB, such as the manifests that are read when a folder is opened, tell of the
// latency alone: until there are larger ones the bandwidth stays at its first guess.
//
// A sample counts for half an hour. A tier that was slow for a while is not read while others are expected to be
// sooner, so that nothing would say that it is slow no more: then what holds is the first guess, and the next read
// decides.
//
// Not thread-safe.
class SpeedFit {
 public:
  // What holds while no sample counts.
  SpeedFit(double latency_s, double bytes_per_s) : first_guess_{latency_s, bytes_per_s, 0} {}
  // In its place what somebody measured before, which counts for as long as a sample.
  void expect(double latency_s, double bytes_per_s, double now_s);

  void started() { ++in_flight_; }
  // Ends one that started. One that failed has no bytes and teaches nothing. `abandoned`: nobody waits for its end,
  // which is still to come, and others may begin before it.
  void finished(double start_s, double end_s, std::uint64_t bytes, bool abandoned = false);

  // Seconds in which the pipe was others', summed over the operations in the fit.
  double waited_s() const { return waited_s_; }

  struct Line {
    double latency_s = 0;
    double bytes_per_s = 0;
    std::uint64_t samples = 0;     // ever; 0 where none counts
    bool tells_bandwidth = false;  // some that counts is large enough; else the bandwidth is a guess
  };
  Line fit(double now_s) const;  // computed once a sample

 private:
  struct Sample {
    double bytes = 0;
    double seconds = 0;
    double end_s = 0;
  };
  struct Recent {
    std::vector<Sample> samples;
    std::size_t next = 0;
  };
  struct Operation {
    double start_s = 0;
    double end_s = 0;
    std::uint64_t bytes = 0;
  };
  // Operations of which each found the pipe held, but for the first.
  struct Period {
    double start_s = 0;
    double end_s = 0;
    std::uint64_t bytes = 0;
    double shortest_s = 0;   // of its operations
    bool continued = false;  // after a cut
  };
  void settle(std::size_t operations);
  void take(const Operation& operation);
  double pipe_free_s() const;
  void emit_sample();
  Line fit_samples(double now_s) const;

  const Line first_guess_;
  Line expected_;
  double expected_until_s_ = -std::numeric_limits<double>::infinity();
  std::array<Recent, 2> recent_;  // small, large
  std::uint64_t samples_ = 0;
  mutable std::optional<Line> fitted_;
  mutable double fitted_until_s_ = 0;  // when something of it counts no more
  std::uint64_t in_flight_ = 0;
  std::vector<Operation> ended_;  // and not settled
  std::optional<Period> period_;
  double waited_s_ = 0;
};

}  // namespace shale
