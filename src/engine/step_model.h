// How long a forward step takes, learned from the steps that were taken.
#pragma once

#include <array>
#include <cstdint>

namespace shale {

// What one forward step computes.
struct StepWork {
  std::uint32_t decoding = 0;  // sequences, a token each
  std::uint32_t tokens = 0;    // of prompts
  std::uint64_t depth = 0;     // positions before each chunk of them, summed: all of them are read

  StepWork with(std::uint32_t more_tokens, std::uint32_t at) const {
    return {decoding, tokens + more_tokens, depth + at};
  }
};

// Seconds as a sum: for the step itself, for each sequence that decodes, each token and each position. Least squares
// over the last fifty steps or so. Terms left open by steps that were all alike follow the proportions of CPUs, so that
// a few odd steps do not turn a token's cost into the step's. Not thread-safe.
class StepModel {
 public:
  StepModel();

  void took(const StepWork& work, double seconds);
  // 0 for no work.
  double seconds(const StepWork& work) const;
  // Tokens of a prompt at `depth` that can be computed in so many seconds together with `work`; below 0 where none.
  double tokens_in(double seconds, const StepWork& work, std::uint32_t depth) const;

 private:
  enum Term : std::size_t { kStep, kDecoding, kTokens, kDepth, kTerms };
  using Terms = std::array<double, kTerms>;
  static Terms terms_of(const StepWork& work);
  void fit();

  Terms costs_;
  double scale_ = 1;                            // of the proportions
  std::array<Terms, kTerms> information_ = {};  // sum of terms · termsᵀ, older steps weighing less
  Terms evidence_ = {};                         // of terms · seconds
  std::uint64_t steps_ = 0;
};

}  // namespace shale
