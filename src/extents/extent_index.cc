#include "extents/extent_index.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_set>
#include <utility>

namespace shale {
namespace {

constexpr std::size_t kNumbersMax = 65535;

std::size_t words(std::uint32_t chunks, std::uint32_t blocks) { return chunks + (blocks + 1) / 2; }

// How many leading blocks of `keys` a chunk with these prints holds.
std::uint32_t matching(std::span<const BlockKey> keys, const std::uint32_t* prints, std::uint32_t blocks) {
  const auto limit = static_cast<std::uint32_t>(std::min<std::size_t>(blocks, keys.size()));
  std::uint32_t count = 0;
  while (count < limit && block_print(keys[count]) == prints[count]) ++count;
  return count;
}

// Where the whole name begins among names that end in commas.
std::size_t ranking_at(const std::string& names, const std::string& name) {
  const std::string wanted = name + ",";
  std::size_t at = names.find(wanted);
  while (at != std::string::npos && at > 0 && names[at - 1] != ',') at = names.find(wanted, at + 1);
  return at;
}

}  // namespace

Hash128 realm_hash(std::string_view name_space, const KvGeometry& geometry, std::uint32_t chunk_tokens,
                   std::string_view tenant) {
  Hasher hasher;
  hasher.add(name_space).add(tenant);
  for (const std::uint64_t number :
       {std::uint64_t{static_cast<std::uint8_t>(geometry.element)}, std::uint64_t{geometry.layers},
        std::uint64_t{geometry.kv_heads}, std::uint64_t{geometry.head_dim}, std::uint64_t{geometry.block_tokens},
        std::uint64_t{geometry.opaque_bytes[0]}, std::uint64_t{geometry.opaque_bytes[1]},
        std::uint64_t{chunk_tokens}}) {
    hasher.add(number);
  }
  return hasher.finish();
}

std::uint64_t chunk_tag(const BlockKey& first_block, const Hash128& realm) {
  return hash64(first_block, realm.high ^ realm.low);
}

std::uint32_t block_print(const BlockKey& key) {
  std::uint32_t print;
  std::memcpy(&print, key.data() + 8, sizeof print);
  return print;
}

void name_chunks(std::span<const BlockKey> keys, const Hash128& realm, std::uint32_t chunk_blocks, ExtentFacts& facts) {
  facts.chunk_blocks = chunk_blocks;
  facts.tags.clear();
  facts.prints.clear();
  for (std::size_t b = 0; b < keys.size(); ++b) {
    if (b % chunk_blocks == 0) facts.tags.push_back(chunk_tag(keys[b], realm));
    facts.prints.push_back(block_print(keys[b]));
  }
}

std::uint32_t Extent::fastest_tier(std::uint8_t excluded) const {
  return static_cast<std::uint32_t>(std::countr_zero(static_cast<unsigned>(tiers & ~excluded)));
}

std::optional<std::uint16_t> ExtentIndex::realm(const Realm& realm) {
  const auto known = realm_numbers_.find(realm.hash);
  if (known != realm_numbers_.end()) {
    if (realms_[known->second].tenant.empty()) realms_[known->second].tenant = realm.tenant;  // manifests name none
    return known->second;
  }
  if (realms_.size() == kNumbersMax) return std::nullopt;
  realms_.push_back(realm);
  return realm_numbers_[realm.hash] = static_cast<std::uint16_t>(realms_.size() - 1);
}

std::optional<std::uint16_t> ExtentIndex::text(const std::string& text) {
  const auto known = std::ranges::find(texts_, text);
  if (known == texts_.end() && texts_.size() == kNumbersMax) return std::nullopt;
  const auto number = static_cast<std::uint16_t>(known - texts_.begin());
  if (known == texts_.end()) texts_.push_back(text);
  return number;
}

std::optional<ExtentId> ExtentIndex::find(const Hash128& name) const {
  std::optional<ExtentId> found;
  by_name_.find(name.low, [&](ExtentId id) {
    if (extents_[id].name == name) found = id;
    return found.has_value();
  });
  return found;
}

std::optional<ExtentId> ExtentIndex::add(const ExtentFacts& facts, std::uint16_t realm) {
  if (const auto known = find(facts.name)) return known;
  const std::size_t blocks = facts.prints.size(), chunks = facts.tags.size();
  if (blocks == 0 || blocks > kBlocksMax || chunks > kChunksMax || facts.chunk_blocks == 0 ||
      chunks != (blocks + facts.chunk_blocks - 1) / facts.chunk_blocks) {
    return std::nullopt;
  }
  const auto method_number = text(facts.method), rankings_number = text(facts.rankings);
  if (!method_number || !rankings_number || (free_.empty() && extents_.size() >= IdTable::kRefEnd / kChunksMax))
    return std::nullopt;
  if (free_.empty()) {
    free_.push_back(static_cast<ExtentId>(extents_.size()));
    extents_.emplace_back();
  }
  const ExtentId id = free_.back();
  free_.pop_back();
  Extent& extent = extents_[id];
  extent.name = facts.name;
  extent.run = facts.run;
  if (!facts.label.empty()) extent.label = std::make_unique<std::string>(facts.label);
  extent.first_block = facts.first_block;
  extent.bytes = facts.bytes;
  extent.expires_s = facts.expires_s;
  extent.accessed_s = facts.accessed_s;
  extent.frequency = facts.frequency;
  extent.recompute_s = facts.recompute_s;
  extent.quality = facts.quality;
  extent.keep = facts.keep;
  extent.realm = realm;
  extent.method = *method_number;
  extent.rankings = *rankings_number;
  extent.blocks = static_cast<std::uint16_t>(blocks);
  extent.chunk_blocks = static_cast<std::uint16_t>(std::min<std::uint32_t>(facts.chunk_blocks, kBlocksMax));
  extent.chunks = static_cast<std::uint8_t>(chunks);
  extent.exact = facts.exact;
  const std::size_t count = words(extent.chunks, extent.blocks);
  extent.names = std::make_unique<std::uint64_t[]>(count);
  names_bytes_ += count * sizeof(std::uint64_t);
  std::ranges::copy(facts.tags, extent.names.get());
  std::memcpy(extent.names.get() + chunks, facts.prints.data(), blocks * sizeof(std::uint32_t));
  by_name_.insert(extent.name.low, id, [this](ExtentId other) { return extents_[other].name.low; });
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) insert_chunk(id, chunk);
  return id;
}

void ExtentIndex::insert_chunk(ExtentId id, std::uint32_t chunk) {
  const auto hash_of = [this](std::uint32_t ref) { return tag_of(ref); };
  by_tag_.insert(extents_[id].names[chunk], id * kChunksMax + chunk, hash_of);
}

ExtentFacts ExtentIndex::facts(ExtentId id) const {
  const Extent& extent = extents_[id];
  ExtentFacts facts;
  facts.name = extent.name;
  facts.run = extent.run;
  if (extent.label) facts.label = *extent.label;
  facts.first_block = extent.first_block;
  facts.method = texts_[extent.method];
  facts.rankings = texts_[extent.rankings];
  facts.keep = extent.keep;
  facts.quality = extent.quality;
  facts.exact = extent.exact;
  facts.bytes = extent.bytes;
  facts.recompute_s = extent.recompute_s;
  facts.frequency = extent.frequency;
  facts.accessed_s = extent.accessed_s;
  facts.expires_s = extent.expires_s;
  facts.chunk_blocks = extent.chunk_blocks;
  facts.tags.assign(extent.names.get(), extent.names.get() + extent.chunks);
  facts.prints.assign(extent.prints(), extent.prints() + extent.blocks);
  return facts;
}

void ExtentIndex::hide_chunk(ExtentId id, std::uint32_t chunk) {
  Extent& extent = extents_[id];
  if ((extent.damaged >> chunk & 1) != 0) return;
  extent.damaged = static_cast<std::uint16_t>(extent.damaged | 1u << chunk);
  by_tag_.erase(extent.names[chunk], id * kChunksMax + chunk);
}

void ExtentIndex::show_chunks(ExtentId id) {
  const std::uint32_t hidden = std::exchange(extents_[id].damaged, std::uint16_t{0});
  for (std::uint32_t chunk = 0; chunk < extents_[id].chunks; ++chunk) {
    if ((hidden >> chunk & 1) != 0) insert_chunk(id, chunk);
  }
}

bool ExtentIndex::has_ranking(const Extent& extent, const std::string& name) const {
  return ranking_at(texts_[extent.rankings], name) != std::string::npos;
}

bool ExtentIndex::lose_ranking(ExtentId id, const std::string& name) {
  Extent& extent = extents_[id];
  std::string left = texts_[extent.rankings];
  const std::size_t at = ranking_at(left, name);
  if (at == std::string::npos) return false;
  left.erase(at, name.size() + 1);
  extent.rankings = text(left).value_or(extent.rankings);
  return true;
}

void ExtentIndex::remove(ExtentId id) {
  Extent& extent = extents_[id];
  for (std::uint32_t chunk = 0; chunk < extent.chunks; ++chunk) hide_chunk(id, chunk);
  by_name_.erase(extent.name.low, id);
  names_bytes_ -= words(extent.chunks, extent.blocks) * sizeof(std::uint64_t);
  extent = Extent();
  free_.push_back(id);
}

bool ExtentIndex::usable(const Extent& extent, std::uint32_t end_block, const SpanFilter& filter) const {
  if ((extent.tiers & ~filter.tiers_excluded) == 0) return false;
  if (extent.expires_s != 0 && extent.expires_s <= filter.wall_s && !extent.pinned(filter.wall_s)) return false;
  if (filter.only_named) return filter.names(extent);
  if (extent.exact) return true;
  if (end_block > filter.exact_after) return false;
  return filter.names(extent) || (!filter.exact && extent.quality >= filter.quality_min);
}

// From keys[first] on.
std::optional<ExtentIndex::Match> ExtentIndex::longest(std::span<const BlockKey> keys, std::uint32_t first,
                                                       const Hash128& realm, const SpanFilter& filter) const {
  const std::span<const BlockKey> from = keys.subspan(first);
  const std::uint64_t tag = chunk_tag(from.front(), realm);
  std::optional<Match> best;
  const auto better = [&](const Match& match) {
    if (!best || match.blocks != best->blocks) return !best || match.blocks > best->blocks;
    const Extent &a = extents_[match.extent], &b = extents_[best->extent];
    if (filter.names(a) != filter.names(b)) return filter.names(a);
    if (filter.worth) return filter.worth(a) > filter.worth(b);
    if (a.exact != b.exact) return a.exact;
    return a.fastest_tier(filter.tiers_excluded) < b.fastest_tier(filter.tiers_excluded);
  };
  by_tag_.find(tag, [&](std::uint32_t ref) {
    const Extent& extent = extents_[ref / kChunksMax];
    const std::uint32_t chunk = ref % kChunksMax;
    if (extent.names[chunk] != tag) return false;
    const std::uint32_t* prints = extent.prints() + std::size_t{chunk} * extent.chunk_blocks;
    const Match match{ref / kChunksMax, chunk, matching(from, prints, extent.blocks_of(chunk))};
    if (match.blocks > 0 && usable(extent, first + match.blocks, filter) && better(match)) best = match;
    return false;
  });
  return best;
}

std::vector<ExtentId> ExtentIndex::within(std::span<const BlockKey> keys, const Hash128& realm) const {
  std::vector<ExtentId> found;
  std::unordered_set<ExtentId> known;  // keys may come twice
  for (std::size_t at = 0; at < keys.size(); ++at) {
    const std::uint64_t tag = chunk_tag(keys[at], realm);
    by_tag_.find(tag, [&](std::uint32_t ref) {
      const Extent& extent = extents_[ref / kChunksMax];
      const std::uint32_t chunk = ref % kChunksMax, before = (1u << chunk) - 1;
      const std::size_t first = std::size_t{chunk} * extent.chunk_blocks;
      if (extent.names[chunk] != tag || extent.tiers == 0 || first > at) return false;
      if ((extent.damaged & before) != before) return false;  // an earlier chunk tells of it
      const ExtentId id = ref / kChunksMax;
      if (matching(keys.subspan(at - first), extent.prints(), extent.blocks) == extent.blocks &&
          known.insert(id).second) {
        found.push_back(id);
      }
      return false;
    });
  }
  return found;
}

std::vector<ChainSpan> ExtentIndex::match(std::span<const BlockKey> keys, const Hash128& realm,
                                          const SpanFilter& filter) const {
  std::vector<ChainSpan> spans;
  const auto end_of = [](const ChainSpan& span) { return span.first_block + span.blocks; };
  // Takes the chunk in from its first block on; what was found before ends there.
  const auto take = [&](std::uint32_t first_block, const Match& match) {
    while (!spans.empty() && spans.back().first_block >= first_block) spans.pop_back();
    if (!spans.empty()) {
      ChainSpan& last = spans.back();
      last.blocks = first_block - last.first_block;
      const Extent& extent = extents_[match.extent];
      if (last.extent == match.extent && last.blocks % extent.chunk_blocks == 0 &&
          last.first_chunk + last.blocks / extent.chunk_blocks == match.chunk) {
        last.blocks += match.blocks;
        return;
      }
    }
    spans.push_back({match.extent, match.chunk, first_block, match.blocks});
  };
  std::uint32_t end = 0, longest_chunk = 1;
  while (end < keys.size()) {
    std::uint32_t first = end;
    auto found = longest(keys, first, realm, filter);
    // A chunk that ends inside another one may have a successor that the longer one has not: look back.
    while (!found && first > 0 && end - first + 1 < longest_chunk) {
      found = longest(keys, --first, realm, filter);
      if (found && first + found->blocks <= end) found.reset();
    }
    if (!found) break;
    take(first, *found);
    longest_chunk = std::max<std::uint32_t>(longest_chunk, extents_[found->extent].chunk_blocks);
    end = end_of(spans.back());
  }
  return spans;
}

std::size_t ExtentIndex::bytes() const {
  constexpr std::size_t kAllocation = 16;  // what the allocator adds to each
  return extents_.size() * sizeof(Extent) + names_bytes_ + by_name_.size() * kAllocation + by_name_.bytes() +
         by_tag_.bytes() + free_.capacity() * sizeof(ExtentId);
}

Status ExtentIndex::check_integrity() const {
  std::size_t extents = 0, chunks = 0;
  for (ExtentId id = 0; id < extents_.size(); ++id) {
    const Extent& extent = extents_[id];
    if (extent.chunks == 0) continue;
    ++extents;
    chunks += extent.chunks - static_cast<std::size_t>(std::popcount(extent.damaged));
    if (find(extent.name) != id) return fail(ErrorCode::kInternal, "extent {} is not found", extent.name.hex());
    if (extent.tiers == 0 && extent.uses == 0) {
      return fail(ErrorCode::kInternal, "extent {} lies nowhere", extent.name.hex());
    }
  }
  if (extents != by_name_.size() || chunks != by_tag_.size() || extents + free_.size() != extents_.size()) {
    return fail(ErrorCode::kInternal, "{} extents and {} chunks, but {} and {} can be found", extents, chunks,
                by_name_.size(), by_tag_.size());
  }
  return {};
}

}  // namespace shale
