#include <algorithm>
#include <iterator>

#include "profile/metrics/text_metrics.h"

namespace shale {

double exact_match(std::string_view answer, std::string_view reference) {
  return normalised_words(answer) == normalised_words(reference) ? 1 : 0;
}

double f1(std::string_view answer, std::string_view reference) {
  std::vector<std::string> ours = normalised_words(answer), theirs = normalised_words(reference), common;
  if (ours.empty() || theirs.empty()) return ours.empty() && theirs.empty() ? 1 : 0;
  std::ranges::sort(ours);
  std::ranges::sort(theirs);
  std::ranges::set_intersection(ours, theirs, std::back_inserter(common));
  return 2 * static_cast<double>(common.size()) / static_cast<double>(ours.size() + theirs.size());
}

}  // namespace shale
