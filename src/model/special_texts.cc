#include "model/special_texts.h"

#include <algorithm>
#include <utility>

namespace shale {

void SpecialTexts::add(std::string text, bool cuts) {
  if (text.empty()) return;
  sizes_.insert(text.size());
  cuts_.emplace(std::move(text), cuts);
}

// Calls `use(size, cuts)` for each that is written at `at`, until it returns true; whether it did.
template <class Use>
bool SpecialTexts::any_at(std::string_view text, std::size_t at, Use use) const {
  for (const std::size_t size : sizes_) {
    if (size > text.size() - at) break;
    const std::string_view prefix = text.substr(at, size);
    const auto found = cuts_.lower_bound(prefix);
    if (found == cuts_.end() || !found->first.starts_with(prefix)) break;  // nor does a longer one begin so
    if (found->first.size() == size && use(size, found->second)) return true;
  }
  return false;
}

std::size_t SpecialTexts::cut_after(std::string_view text, std::size_t from) const {
  for (std::size_t at = from; at < text.size(); ++at) {
    std::size_t end = 0;
    const auto cut_here = [&](std::size_t size, bool cuts) {
      end = at + size;
      return cuts && apart(text, at, size);
    };
    if (any_at(text, at, cut_here)) return end;
  }
  return std::string_view::npos;
}

// Whether no other occurrence shares a byte with this one.
bool SpecialTexts::apart(std::string_view text, std::size_t at, std::size_t size) const {
  const std::size_t longest = *sizes_.rbegin();
  for (std::size_t other = at - std::min(at, longest - 1); other < at + size; ++other) {
    const auto overlaps = [&](std::size_t other_size, bool) {
      return other + other_size > at && !(other == at && other_size == size);
    };
    if (any_at(text, other, overlaps)) return false;
  }
  return true;
}

}  // namespace shale
