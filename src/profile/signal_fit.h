// What a context's own signals (context_signals.h) say about its quality beyond what is expected of any context: a
// regression over contexts that were measured.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "profile/context_signals.h"

namespace shale {

// One context under one configuration.
struct SignalSample {
  std::size_t configuration = 0;
  ContextSignals signals;
  double quality = 0;  // measured
};

// Ridge regression of quality on attention mass kept and on the logarithm of the error, each as standard deviations
// from its mean at the configuration, with the same slopes for all configurations: so few contexts are enough, and
// configurations at which contexts hardly differ are hardly moved.
class SignalFit {
 public:
  // Nothing where no configuration has three samples.
  static std::optional<SignalFit> of(std::span<const SignalSample> samples);

  // The amount to add to what is expected at the configuration; 0 where it was not among the samples.
  double shift(std::size_t configuration, const ContextSignals& signals) const;

 private:
  struct Moments {
    double count = 0, mean = 0, deviation = 0;
    double standard(double value) const { return deviation > 0 ? (value - mean) / deviation : 0; }
  };
  struct Configuration {
    Moments mass, error, quality;
  };
  static Moments moments(std::span<const double> values);

  std::vector<Configuration> configurations_;
  double mass_slope_ = 0, error_slope_ = 0;
};

}  // namespace shale
