#include "engine/step_model.h"

#include <algorithm>
#include <numeric>

namespace shale {
namespace {

constexpr double kForgetting = 0.98;
constexpr double kTrust = 4;  // steps that the proportions weigh as much as
constexpr double kScaleGain = 1.0 / 16;
constexpr std::uint64_t kFirstSteps = 8;
constexpr double kLeastShare = 0.2;  // of what the proportions say: nothing is free

// Units of the terms.
constexpr double kSequencesUnit = 8, kTokensUnit = 32, kPositionsUnit = 1024;
// Seconds of a unit of each, as SmolLM2-135M takes them on two cores: reading all weights once costs as much as
// computing about thirty tokens, whatever the size of the model.
constexpr std::array<double, 4> kProportions = {0.017, 0.017, 0.02, 0.0085};

}  // namespace

StepModel::StepModel() : costs_(kProportions) {}

StepModel::Terms StepModel::terms_of(const StepWork& work) {
  return {1, work.decoding / kSequencesUnit, work.tokens / kTokensUnit,
          static_cast<double>(work.depth) / kPositionsUnit};
}

double StepModel::seconds(const StepWork& work) const {
  if (work.decoding == 0 && work.tokens == 0) return 0;
  const Terms terms = terms_of(work);
  return std::inner_product(terms.begin(), terms.end(), costs_.begin(), 0.0);
}

double StepModel::tokens_in(double seconds, const StepWork& work, std::uint32_t depth) const {
  return (seconds - this->seconds(work.with(0, depth))) * kTokensUnit / costs_[kTokens];
}

void StepModel::took(const StepWork& work, double seconds) {
  const Terms terms = terms_of(work);
  const double by_proportions = std::inner_product(terms.begin(), terms.end(), kProportions.begin(), 0.0);
  if (steps_++ < kFirstSteps) {
    scale_ += (seconds / by_proportions - scale_) / static_cast<double>(steps_);
  } else {
    // A step that something else held up says little of what it computed.
    seconds = std::min(seconds, 2 * this->seconds(work));
    scale_ += (seconds / by_proportions - scale_) * kScaleGain;
  }
  for (std::size_t i = 0; i < kTerms; ++i) {
    for (std::size_t j = 0; j < kTerms; ++j) {
      information_[i][j] = kForgetting * information_[i][j] + terms[i] * terms[j];
    }
    evidence_[i] = kForgetting * evidence_[i] + terms[i] * seconds;
  }
  fit();
}

// Solves (information + trust) costs = evidence + trust · proportions, by elimination: the matrix is positive definite.
void StepModel::fit() {
  std::array<Terms, kTerms> left = information_;
  Terms right = evidence_;
  for (std::size_t i = 0; i < kTerms; ++i) {
    left[i][i] += kTrust;
    right[i] += kTrust * scale_ * kProportions[i];
  }
  for (std::size_t i = 0; i < kTerms; ++i) {
    for (std::size_t row = i + 1; row < kTerms; ++row) {
      const double factor = left[row][i] / left[i][i];
      for (std::size_t j = i; j < kTerms; ++j) left[row][j] -= factor * left[i][j];
      right[row] -= factor * right[i];
    }
  }
  for (std::size_t i = kTerms; i-- > 0;) {
    double sum = right[i];
    for (std::size_t j = i + 1; j < kTerms; ++j) sum -= left[i][j] * costs_[j];
    costs_[i] = std::max(sum / left[i][i], kLeastShare * scale_ * kProportions[i]);
  }
}

}  // namespace shale
