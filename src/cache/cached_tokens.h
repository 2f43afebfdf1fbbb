// Tokens of prompts that were not computed, by where they came from.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tier/tier.h"

namespace shale {

// What the engine's own memory is called among sources; no tier is called so.
inline constexpr std::string_view kPoolSource = "pool";

// A counter for each source: the pool first, then tiers, fast to slow.
class CachedTokens {
 public:
  // No sources yet: they appear in the order in which they are counted.
  CachedTokens() = default;
  // Zero for the pool and for each tier, so that reports name sources that gave nothing, too.
  explicit CachedTokens(std::span<Tier* const> tiers);

  struct Source {
    std::string name;
    std::uint64_t tokens = 0;
  };
  const std::vector<Source>& sources() const { return sources_; }
  std::uint64_t total() const;
  // 0 for a name that is none of them.
  std::uint64_t from(std::string_view name) const;

  void add(std::string_view name, std::uint64_t tokens);
  void add(const CachedTokens& other);

 private:
  std::vector<Source> sources_;
};

}  // namespace shale
