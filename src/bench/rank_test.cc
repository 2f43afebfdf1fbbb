#include "bench/rank_test.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

namespace shale {

RankTest rank_test(std::span<const double> a, std::span<const double> b) {
  if (a.empty() || b.empty()) return {};
  std::vector<std::pair<double, bool>> all;  // whether it is of `a`
  for (const double value : a) all.emplace_back(value, true);
  for (const double value : b) all.emplace_back(value, false);
  std::ranges::sort(all);
  const auto n = static_cast<double>(all.size()), n_a = static_cast<double>(a.size()), n_b = n - n_a;
  double ranks_of_a = 0, ties = 0;
  for (std::size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    std::size_t of_a = 0;
    for (; end < all.size() && all[end].first == all[begin].first; ++end) of_a += all[end].second;
    const auto equal = static_cast<double>(end - begin);
    ranks_of_a += static_cast<double>(of_a) * (static_cast<double>(begin + end) + 1) / 2;  // the mean of theirs
    ties += equal * equal * equal - equal;
  }
  const double u = ranks_of_a - n_a * (n_a + 1) / 2;
  const double variance = n_a * n_b / 12 * (n + 1 - ties / (n * (n - 1)));
  RankTest test{.auc = u / (n_a * n_b)};
  if (variance <= 0) return test;
  const double beyond = std::max(0.0, std::abs(u - n_a * n_b / 2) - 0.5);  // corrected for continuity
  test.p = std::erfc(beyond / std::sqrt(variance) / std::numbers::sqrt2);
  return test;
}

}  // namespace shale
