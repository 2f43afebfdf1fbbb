#include "engine/step_model.h"

#include <algorithm>

namespace shale {
namespace {

constexpr double kForgetting = 0.99;
constexpr double kCovarianceMax = 20;  // of what steps say nothing of, no more is forgotten
constexpr double kTokensFirst = 100;   // a token's cost is what the first steps tell most of
constexpr std::uint64_t kFirstSteps = 8;
constexpr double kTokenMin = 1e-6;  // seconds; a token is never free

// Units in which all terms are of one size.
constexpr double kSequencesUnit = 8, kTokensUnit = 32, kPositionsUnit = 1024;

}  // namespace

StepModel::StepModel(double token_s) {
  costs_[kTokens] = token_s * kTokensUnit;
  for (std::size_t i = 0; i < kTerms; ++i) covariance_[i][i] = i == kTokens ? kTokensFirst : 1;
}

StepModel::Terms StepModel::terms_of(const StepWork& work) {
  return {1, work.decoding / kSequencesUnit, work.tokens / kTokensUnit,
          static_cast<double>(work.depth) / kPositionsUnit};
}

double StepModel::seconds(const StepWork& work) const {
  if (work.decoding == 0 && work.tokens == 0) return 0;
  const Terms terms = terms_of(work);
  double sum = 0;
  for (std::size_t i = 0; i < kTerms; ++i) sum += costs_[i] * terms[i];
  return sum;
}

double StepModel::tokens_in(double seconds, const StepWork& work, std::uint32_t depth) const {
  return (seconds - this->seconds(work.with(0, depth))) / (costs_[kTokens] / kTokensUnit);
}

void StepModel::took(const StepWork& work, double seconds) {
  const double expected = this->seconds(work);
  // A step that something else held up says little of what it computed.
  if (steps_++ >= kFirstSteps) seconds = std::min(seconds, 2 * expected);
  const Terms terms = terms_of(work);
  Terms spread = {};  // covariance · terms
  double error = seconds - expected, trace = 0;
  for (std::size_t i = 0; i < kTerms; ++i) {
    for (std::size_t j = 0; j < kTerms; ++j) spread[i] += covariance_[i][j] * terms[j];
    trace += covariance_[i][i];
  }
  const double forgetting = trace < kCovarianceMax ? kForgetting : 1;
  double scale = forgetting;
  for (std::size_t i = 0; i < kTerms; ++i) scale += terms[i] * spread[i];
  for (std::size_t i = 0; i < kTerms; ++i) {
    const double least = i == kTokens ? kTokenMin * kTokensUnit : 0;  // nothing gains time
    costs_[i] = std::max(least, costs_[i] + spread[i] / scale * error);
  }
  for (std::size_t i = 0; i < kTerms; ++i) {
    for (std::size_t j = 0; j < kTerms; ++j) {
      covariance_[i][j] = (covariance_[i][j] - spread[i] * spread[j] / scale) / forgetting;
    }
  }
}

}  // namespace shale
