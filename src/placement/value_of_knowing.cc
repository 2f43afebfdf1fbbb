#include "placement/value_of_knowing.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace shale {
namespace {

// The mean of what a normal variable exceeds `short_of` by, where it does.
double expected_improvement(double short_of, double deviation) {
  if (deviation <= 0) return std::max(0.0, -short_of);
  const double z = short_of / deviation;
  const double density = std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
  return deviation * (density - z * std::erfc(z / std::numbers::sqrt2) / 2);
}

}  // namespace

double value_of_knowing(std::span<const UncertainForm> forms, double alpha, double floor) {
  const UncertainForm* best = nullptr;
  const auto utility = [alpha](const UncertainForm& form) { return alpha * form.quality - form.load_s; };
  for (const UncertainForm& form : forms) {
    if (form.quality >= floor && (!best || utility(form) > utility(*best))) best = &form;
  }
  double value = 0;
  for (const UncertainForm& form : forms) {
    if (&form == best) {
      if (floor > 0) value = std::max(value, expected_improvement(alpha * (form.quality - floor), alpha * form.learnt));
      continue;
    }
    const double behind = best ? utility(*best) - utility(form) : 0, below = alpha * (floor - form.quality);
    const double deviation = alpha * std::hypot(form.learnt, best ? best->learnt : 0);
    value = std::max(value, expected_improvement(std::max(behind, below), deviation));
  }
  return value;
}

}  // namespace shale
