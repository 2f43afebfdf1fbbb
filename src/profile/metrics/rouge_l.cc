#include <algorithm>

#include "profile/metrics/text_metrics.h"

namespace shale {

double rouge_l(std::string_view answer, std::string_view reference) {
  const std::vector<std::string> ours = words_of(answer), theirs = words_of(reference);
  if (ours.empty() || theirs.empty()) return ours.empty() && theirs.empty() ? 1 : 0;
  // lengths[j]: of the longest common subsequence of what was read of `ours` and the first j words of `theirs`.
  std::vector<std::size_t> lengths(theirs.size() + 1);
  for (const std::string& word : ours) {
    std::size_t diagonal = 0;
    for (std::size_t j = 1; j <= theirs.size(); ++j) {
      const std::size_t above = lengths[j];
      lengths[j] = word == theirs[j - 1] ? diagonal + 1 : std::max(above, lengths[j - 1]);
      diagonal = above;
    }
  }
  return 2 * static_cast<double>(lengths.back()) / static_cast<double>(ours.size() + theirs.size());
}

}  // namespace shale
