#include "cache/quality_table.h"

#include <algorithm>
#include <cmath>

namespace shale {

QualityTable::Key QualityTable::key_of(const Method& method, double keep) {
  return {method.text(), std::llround(keep * 1e6)};
}

void QualityTable::record(const Hash128& entry, const Method& method, double keep, double quality,
                          std::uint32_t questions) {
  Measured& measured = measured_[key_of(method, keep)];
  OfEntry& own = measured.of_entry[entry];
  measured.sum += quality - own.quality;
  own = {quality, std::max(1.0, static_cast<double>(questions))};
}

void QualityTable::forget(const Hash128& entry) {
  for (auto at = measured_.begin(); at != measured_.end();) {
    Measured& measured = at->second;
    if (const auto own = measured.of_entry.find(entry); own != measured.of_entry.end()) {
      measured.sum -= own->second.quality;
      measured.of_entry.erase(own);
    }
    at = measured.of_entry.empty() ? measured_.erase(at) : std::next(at);
  }
}

std::optional<Quality> QualityTable::quality_for(const Hash128& entry, const Method& method, double keep) const {
  if (method.is_full()) return Quality{.quality = 1, .expected = 1};
  const auto at = measured_.find(key_of(method, keep));
  if (at == measured_.end()) return std::nullopt;
  const Measured& measured = at->second;
  const auto entries = static_cast<std::uint32_t>(measured.of_entry.size());
  const auto found = measured.of_entry.find(entry);
  if (found == measured.of_entry.end()) {
    const double mean = measured.sum / entries;
    return Quality{.quality = mean, .expected = mean, .prior = true, .entries = entries};
  }
  const OfEntry& own = found->second;
  if (entries == 1) return Quality{.quality = own.quality, .expected = own.quality};
  const double others = (measured.sum - own.quality) / (entries - 1);
  const double expected = (own.questions * own.quality + kPriorQuestions * others) / (own.questions + kPriorQuestions);
  return Quality{.quality = own.quality, .expected = expected};
}

}  // namespace shale
