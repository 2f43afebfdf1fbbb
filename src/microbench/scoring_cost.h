// What gathering a scorer's needs costs while a context is computed, and what scoring costs then.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/spans/repetition.h"
#include "model/model.h"

namespace shale::bench {

// One prefill watched for one thing, beside the same prefill watched for nothing: medians of runs that take turns.
struct ObservingCost {
  std::string observed;
  double seconds = 0;          // more than the plain prefill takes
  double prefill_share = 0;    // of the plain prefill's time
  double attention_share = 0;  // of the time that the plain prefill's attention takes
};

// One scorer over the layers that are ranked, after what it reads was gathered.
struct ScoringCost {
  std::string scorer;
  double observing_seconds = 0;  // gathering what this scorer alone needs
  double seconds = 0;            // scoring
  double prefill_share = 0;      // both, of the plain prefill's time
};

struct ScoringCosts {
  std::uint32_t layers = 0;  // that are ranked: those without a sliding window
  double prefill_seconds = 0, attention_seconds = 0;
  std::vector<ObservingCost> observing;
  std::vector<ScoringCost> scoring;
};

// Measures over `tokens` random tokens. Scorers that need a calibration are left out. kInvalidArgument when the model's
// context is too short to repeat so many.
Result<ScoringCosts> measure_scoring(Model& model, const Tokenizer& tokenizer, std::uint32_t tokens,
                                     std::uint32_t rounds);

}  // namespace shale::bench
