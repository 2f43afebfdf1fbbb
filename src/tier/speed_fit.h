// Latency and bandwidth from the operations that happen anyway.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace shale {

// Fits seconds = latency + bytes / bandwidth to recent work of one direction of one tier.
//
// A sample is a *busy period*, from the start of an operation when none is under way to the end of the last one, and
// its bytes: many operations started together are one sample, so that the fit says what loading that many bytes costs,
// not how long each of them queued. A period that does not end is cut at a second.
//
// Small (up to 1 MiB) and large periods are kept apart, the latest 32 of each, so that a long run of one size does not
// forget the other, without which latency and bandwidth cannot be told apart. The slope is the weighted median of the
// slopes between pairs that differ at least twofold in bytes (Theil-Sen, weighted by the difference: Sen, 1968;
// Jaeckel, 1972), the latency the median residual of the small ones: up to a quarter of the samples may be
// arbitrarily wrong. Periods below 128 KiB, such as the manifests that are read when a folder is opened, tell of the
// latency alone: until there are larger ones the bandwidth stays at its first guess.
//
// Not thread-safe.
class SpeedFit {
 public:
  SpeedFit(double latency_s, double bytes_per_s);  // what holds until there are samples

  void started(double now_s);
  // Failed operations count with no bytes; a period without bytes is no sample.
  void finished(double end_s, std::uint64_t bytes);

  struct Line {
    double latency_s = 0;
    double bytes_per_s = 0;
    std::uint64_t samples = 0;  // ever
  };
  Line fit() const;  // computed once a sample

 private:
  struct Sample {
    double bytes = 0;
    double seconds = 0;
  };
  struct Recent {
    std::vector<Sample> samples;
    std::size_t next = 0;
  };
  void close_period();
  Line fit_samples() const;

  Line guess_;
  std::array<Recent, 2> recent_;  // small, large
  std::uint64_t samples_ = 0;
  mutable std::optional<Line> fitted_;
  std::uint64_t under_way_ = 0;
  double period_start_s_ = 0;
  double period_end_s_ = 0;
  std::uint64_t period_bytes_ = 0;
};

}  // namespace shale
