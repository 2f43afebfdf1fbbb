// How far two measures order the same things alike.
#pragma once

#include <optional>
#include <span>

namespace shale {

// Spearman's: the correlation of ranks, equal values sharing the mean of theirs. 1 for the same order, -1 for the
// reverse; nothing where either has one value only. `a` and `b` are of equal length, without NaN.
std::optional<double> rank_correlation(std::span<const double> a, std::span<const double> b);

}  // namespace shale
