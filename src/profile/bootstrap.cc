#include "profile/bootstrap.h"

#include <algorithm>
#include <random>
#include <utility>

namespace shale {

Interval bootstrap_mean(std::span<const std::vector<double>> groups, std::uint32_t resamples, std::uint64_t seed) {
  std::vector<std::pair<double, double>> sums;  // of a group's values, and how many
  for (const std::vector<double>& group : groups) {
    double sum = 0;
    for (const double value : group) sum += value;
    if (!group.empty()) sums.emplace_back(sum, static_cast<double>(group.size()));
  }
  if (sums.empty()) return {};
  const auto mean_of = [&](const auto& pick) {
    double sum = 0, count = 0;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const auto& [group_sum, group_count] = sums[pick(i)];
      sum += group_sum;
      count += group_count;
    }
    return sum / count;
  };
  Interval interval{.mean = mean_of([](std::size_t i) { return i; })};
  std::mt19937_64 random(seed);
  std::vector<double> means(std::max(resamples, 1U));
  for (double& mean : means) mean = mean_of([&](std::size_t) { return random() % sums.size(); });
  std::ranges::sort(means);
  const auto at = [&](double share) {
    return means[static_cast<std::size_t>(share * static_cast<double>(means.size() - 1))];
  };
  interval.low = at(0.025);
  interval.high = at(0.975);
  return interval;
}

}  // namespace shale
