// How well cheap predictions order a context's configurations.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "report/quality_rows.h"

namespace shale {

struct PredictionSkill {
  std::string predictor;
  std::size_t contexts = 0;     // that it had something to say of
  double rank_correlation = 0;  // with measured agreement, over a context's configurations; mean over contexts
  // The same over contexts at one configuration, mean over configurations; nothing where too few contexts differ.
  std::optional<double> between = {};
  double seconds = 0;  // a context, for all its configurations; mean
};

// The texts that ship with Shale (profile/prior_texts.h), as a data set of their own.
inline constexpr std::string_view kPriorDataset = "shale-prior";

// Skills over rows of one model and way of asking: "measured" itself first; "mass", "error" (negated) and "probe" where
// they were predicted; "ten contexts", the mean of the first ten other contexts of the data set, which costs a further
// context nothing (AdaptCache, arXiv 2509.00105); "prior", what a cache expects that knows the shipped texts alone;
// "other data sets", what it expects once it has profiled the contexts of all other data sets, too; and "and signals",
// that, moved by mass and error as a regression over the same contexts says (profile/signal_fit.h). The shipped texts
// themselves are not predicted. Empty where nothing was predicted.
std::vector<PredictionSkill> prediction_skills(std::span<const QualityRow* const> rows);

}  // namespace shale
