// How well cheap predictions order a context's configurations.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/quality_rows.h"

namespace shale {

struct PredictionSkill {
  std::string predictor;
  std::size_t contexts = 0;     // that it had something to say of
  double rank_correlation = 0;  // with measured agreement, over a context's configurations; mean over contexts
  double seconds = 0;           // a context, for all its configurations; mean
};

// Of rows of one model and way of asking: "measured" itself first; "mass", "error" (negated) and "probe" where they
// were predicted; and "ten entries", the mean of the first ten other contexts of the data set, which costs a further
// context nothing (AdaptCache, arXiv 2509.00105). Empty where nothing was predicted.
std::vector<PredictionSkill> prediction_skills(std::span<const QualityRow* const> rows);

}  // namespace shale
