#include "cache/quality_table.h"

#include <cmath>

namespace shale {

QualityTable::Key QualityTable::key_of(const Method& method, double keep) {
  return {method.text(), std::llround(keep * 1e6)};
}

void QualityTable::record(const Hash128& entry, const Method& method, double keep, double quality) {
  Measured& measured = measured_[key_of(method, keep)];
  double& own = measured.of_entry[entry];
  measured.sum += quality - own;
  own = quality;
}

void QualityTable::forget(const Hash128& entry) {
  for (auto at = measured_.begin(); at != measured_.end();) {
    Measured& measured = at->second;
    if (const auto own = measured.of_entry.find(entry); own != measured.of_entry.end()) {
      measured.sum -= own->second;
      measured.of_entry.erase(own);
    }
    at = measured.of_entry.empty() ? measured_.erase(at) : std::next(at);
  }
}

std::optional<Quality> QualityTable::quality_for(const Hash128& entry, const Method& method, double keep) const {
  if (method.is_full()) return Quality{.quality = 1};
  const auto at = measured_.find(key_of(method, keep));
  if (at == measured_.end()) return std::nullopt;
  const Measured& measured = at->second;
  if (const auto own = measured.of_entry.find(entry); own != measured.of_entry.end())
    return Quality{.quality = own->second};
  const auto entries = static_cast<std::uint32_t>(measured.of_entry.size());
  return Quality{.quality = measured.sum / entries, .prior = true, .entries = entries};
}

}  // namespace shale
