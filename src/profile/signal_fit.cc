#include "profile/signal_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace shale {
namespace {

constexpr double kRidge = 10;  // as if so many samples had said that signals mean nothing
constexpr double kErrorMin = 1e-9;
constexpr std::size_t kSamplesMin = 3;
constexpr double kStandardMax = 3;  // what lies further out is no reason to expect more

double log_error(const ContextSignals& signals) { return std::log(std::max(signals.error, kErrorMin)); }
double bounded(double standard) { return std::clamp(standard, -kStandardMax, kStandardMax); }

}  // namespace

SignalFit::Moments SignalFit::moments(std::span<const double> values) {
  Moments moments{.count = static_cast<double>(values.size())};
  for (const double value : values) moments.mean += value / moments.count;
  double squares = 0;
  for (const double value : values) squares += (value - moments.mean) * (value - moments.mean);
  moments.deviation = std::sqrt(squares / moments.count);
  // What is left of rounding is no difference.
  if (moments.deviation < 1e-9 * (1 + std::abs(moments.mean))) moments.deviation = 0;
  return moments;
}

std::optional<SignalFit> SignalFit::of(std::span<const SignalSample> samples) {
  SignalFit fit;
  std::size_t configurations = 0;
  for (const SignalSample& sample : samples) configurations = std::max(configurations, sample.configuration + 1);
  fit.configurations_.resize(configurations);
  bool any = false;
  for (std::size_t c = 0; c < configurations; ++c) {
    std::vector<double> mass, error, quality;
    for (const SignalSample& sample : samples) {
      if (sample.configuration != c) continue;
      mass.push_back(sample.signals.mass);
      error.push_back(log_error(sample.signals));
      quality.push_back(sample.quality);
    }
    if (quality.size() < kSamplesMin) continue;
    any = true;
    fit.configurations_[c] = {moments(mass), moments(error), moments(quality)};
  }
  if (!any) return std::nullopt;
  // Normal equations of two slopes.
  double mm = kRidge, ee = kRidge, me = 0, mq = 0, eq = 0;
  for (const SignalSample& sample : samples) {
    const Configuration& of = fit.configurations_[sample.configuration];
    const double m = bounded(of.mass.standard(sample.signals.mass));
    const double e = bounded(of.error.standard(log_error(sample.signals)));
    const double q = of.quality.standard(sample.quality);
    mm += m * m;
    ee += e * e;
    me += m * e;
    mq += m * q;
    eq += e * q;
  }
  const double determinant = mm * ee - me * me;  // positive: of a positive matrix
  fit.mass_slope_ = (ee * mq - me * eq) / determinant;
  fit.error_slope_ = (mm * eq - me * mq) / determinant;
  return fit;
}

double SignalFit::shift(std::size_t configuration, const ContextSignals& signals) const {
  if (configuration >= configurations_.size()) return 0;
  const Configuration& of = configurations_[configuration];
  return of.quality.deviation * (mass_slope_ * bounded(of.mass.standard(signals.mass)) +
                                 error_slope_ * bounded(of.error.standard(log_error(signals))));
}

}  // namespace shale
