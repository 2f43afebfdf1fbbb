#include "cache/cached_tokens.h"

#include <algorithm>

namespace shale {

CachedTokens::CachedTokens(std::span<Tier* const> tiers) {
  sources_.push_back({std::string(kPoolSource), 0});
  for (const Tier* tier : tiers) sources_.push_back({tier->name(), 0});
}

std::uint64_t CachedTokens::total() const {
  std::uint64_t total = 0;
  for (const Source& source : sources_) total += source.tokens;
  return total;
}

std::uint64_t CachedTokens::from(std::string_view name) const {
  const auto found = std::ranges::find(sources_, name, &Source::name);
  return found == sources_.end() ? 0 : found->tokens;
}

void CachedTokens::add(std::string_view name, std::uint64_t tokens) {
  const auto found = std::ranges::find(sources_, name, &Source::name);
  if (found == sources_.end()) {
    sources_.push_back({std::string(name), tokens});
  } else {
    found->tokens += tokens;
  }
}

void CachedTokens::add(const CachedTokens& other) {
  for (const Source& source : other.sources_) add(source.name, source.tokens);
}

}  // namespace shale
