#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

#include "codec/ranking.h"

namespace shale {
namespace {

constexpr std::uint32_t kPlanes = 3;
static_assert(kImportanceTiers <= 1 << kPlanes);

constexpr std::uint64_t kAll = ~std::uint64_t{0};

// Bits [first, last) of a word that begins at bit 64 · word.
std::uint64_t window(std::uint32_t word, std::uint32_t first, std::uint32_t last) {
  const std::uint64_t begin = std::uint64_t{word} * 64, end = begin + 64;
  if (last <= begin || first >= end) return 0;
  const std::uint64_t from = first <= begin ? kAll : kAll << (first - begin);
  const std::uint64_t to = last >= end ? kAll : (std::uint64_t{1} << (last - begin)) - 1;
  return from & to;
}

}  // namespace

std::uint32_t tiers_for(double keep) {
  const auto reaches = std::ranges::find_if(kKeepGrid, [&](double each) { return each >= keep; });
  return static_cast<std::uint32_t>(std::min(reaches - kKeepGrid.begin() + 1, std::ssize(kKeepGrid)));
}

TierMap::TierMap(std::uint32_t heads, std::uint32_t tokens)
    : heads_(heads), tokens_(tokens), planes_(std::size_t{heads} * words() * kPlanes) {}

std::size_t TierMap::bytes_of(std::uint32_t heads, std::uint32_t tokens) {
  return std::size_t{heads} * ((tokens + 63) / 64) * kPlanes * sizeof(std::uint64_t);
}

Result<TierMap> TierMap::parse(std::uint32_t heads, std::uint32_t tokens, std::span<const std::byte> bytes) {
  const auto corrupt = [] { return fail(ErrorCode::kCorrupt, "the importance tiers of an extent are damaged"); };
  if (bytes.size() != bytes_of(heads, tokens) || bytes.empty()) return corrupt();
  TierMap map(heads, tokens);
  std::memcpy(map.planes_.data(), bytes.data(), bytes.size());
  for (std::uint32_t head = 0; head < heads; ++head) {
    for (std::uint32_t word = 0; word < map.words(); ++word) {
      const std::uint64_t* planes = map.planes(head, word);
      const std::uint64_t within = window(word, 0, tokens);
      const std::uint64_t beyond = (planes[0] | planes[1] | planes[2]) & ~within;
      if (beyond != 0 || map.bits(head, word, 0, tokens, 0, kImportanceTiers) != within) return corrupt();
    }
  }
  return map;
}

std::uint32_t TierMap::tier(std::uint32_t head, std::uint32_t token) const {
  const std::uint64_t* of = planes(head, token / 64);
  std::uint32_t tier = 0;
  for (std::uint32_t p = 0; p < kPlanes; ++p) tier |= static_cast<std::uint32_t>(of[p] >> token % 64 & 1) << p;
  return tier;
}

void TierMap::set(std::uint32_t head, std::uint32_t token, std::uint32_t tier) {
  assert(head < heads_ && token < tokens_ && tier < kImportanceTiers);
  std::uint64_t* of = &planes_[(std::size_t{head} * words() + token / 64) * kPlanes];
  const std::uint64_t bit = std::uint64_t{1} << token % 64;
  for (std::uint32_t p = 0; p < kPlanes; ++p) of[p] = (tier >> p & 1) != 0 ? of[p] | bit : of[p] & ~bit;
}

std::uint64_t TierMap::bits(std::uint32_t head, std::uint32_t word, std::uint32_t first, std::uint32_t last,
                            std::uint32_t tier, std::uint32_t end) const {
  const std::uint64_t* of = planes(head, word);
  std::uint64_t bits = 0;
  for (; tier < end; ++tier) {
    std::uint64_t in_tier = kAll;
    for (std::uint32_t p = 0; p < kPlanes; ++p) in_tier &= (tier >> p & 1) != 0 ? of[p] : ~of[p];
    bits |= in_tier;
  }
  return bits & window(word, first, last);
}

std::uint32_t TierMap::count(std::uint32_t head, std::uint32_t first, std::uint32_t last, std::uint32_t tier,
                             std::uint32_t end) const {
  std::uint32_t count = 0;
  for (std::uint32_t word = first / 64; word * 64 < last; ++word) {
    count += static_cast<std::uint32_t>(std::popcount(bits(head, word, first, last, tier, end)));
  }
  return count;
}

TierMap TierMap::part(std::uint32_t first, std::uint32_t count) const {
  assert(first + count <= tokens_);
  TierMap part(heads_, count);
  for (std::uint32_t head = 0; head < heads_; ++head) {
    for (std::uint32_t token = 0; token < count; ++token) part.set(head, token, tier(head, first + token));
  }
  return part;
}

}  // namespace shale
