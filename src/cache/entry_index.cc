#include "cache/entry_index.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

namespace shale {

namespace {

std::uint32_t common_prefix(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  return static_cast<std::uint32_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

double StoredObject::keep() const {
  return manifest->strata_tokens.size() <= 1 ? 1.0 : kKeepGrid[std::min<std::size_t>(strata, kKeepGrid.size()) - 1];
}

std::uint64_t StoredObject::bytes() const {
  std::uint64_t sum = 0;
  for (const std::uint32_t chunk : manifest->chunks_for(strata, bits)) sum += manifest->chunks[chunk].bytes;
  return sum;
}

std::optional<Bits> StoredObject::serves(const Method& method, double keep) const {
  if (strata < manifest->strata_for(keep)) return std::nullopt;
  if (method == manifest->method_at(bits)) return bits;
  if (method == manifest->method_at(Bits::kBase)) return Bits::kBase;
  return std::nullopt;
}

StoredObject* Entry::find(const Method& method, std::uint32_t tier) {
  const auto at = std::ranges::find_if(
      objects, [&](const StoredObject& object) { return object.tier == tier && object.method() == method; });
  return at == objects.end() ? nullptr : &*at;
}

const StoredObject* Entry::full_copy() const {
  const StoredObject* fastest = nullptr;
  for (const StoredObject& object : objects) {
    if (object.method().is_full() && (!fastest || object.tier < fastest->tier)) fastest = &object;
  }
  return fastest;
}

void Entry::forget(const Hash128& object, std::uint32_t tier) {
  std::erase_if(objects, [&](const StoredObject& known) { return known.tier == tier && known.name() == object; });
}

void Entry::access(double now_s) {
  frequency.access(now_s);
  accesses_here.access(now_s);
}

bool Entry::being_read() {
  std::erase_if(reads, [](const std::weak_ptr<TierRead>& started) {
    const auto read = started.lock();
    return !read || read->ready();
  });
  return !reads.empty();
}

Entry* EntryIndex::find(const EntryKey& key) {
  const auto at = entries_.find(key);
  return at == entries_.end() ? nullptr : at->second.get();
}

const Entry* EntryIndex::find(const EntryKey& key) const {
  const auto at = entries_.find(key);
  return at == entries_.end() ? nullptr : at->second.get();
}

Entry& EntryIndex::add(const EntryKey& key, const EntryKey& parent, std::uint32_t first_position,
                       std::span<const std::int32_t> tokens) {
  std::unique_ptr<Entry>& entry = entries_[key];
  if (entry) return *entry;
  entry = std::make_unique<Entry>();
  entry->key = key;
  entry->parent = parent;
  entry->first_position = first_position;
  entry->tokens.assign(tokens.begin(), tokens.end());
  entry->changes = changes_.get();
  entry->note_change();
  children_[parent].emplace(entry->tokens, entry.get());
  if (Entry* above = find(parent)) {
    ++above->children;
    above->note_change();
  }
  if (const auto own = children_.find(key); own != children_.end()) {
    entry->children = static_cast<std::uint32_t>(own->second.size());
  }
  return *entry;
}

void EntryIndex::remove(const EntryKey& key) {
  const auto at = entries_.find(key);
  assert(at != entries_.end() && at->second->pins == 0);
  const Entry& entry = *at->second;
  const auto siblings = children_.find(entry.parent);
  siblings->second.erase(entry.tokens);
  if (siblings->second.empty()) children_.erase(siblings);
  if (Entry* above = find(entry.parent)) {
    --above->children;
    above->note_change();
  }
  entries_.erase(at);
}

std::vector<EntryKey> EntryIndex::take_changes() {
  for (const EntryKey& key : *changes_) {
    if (Entry* entry = find(key)) entry->noted = false;
  }
  return std::exchange(*changes_, {});
}

std::vector<EntryIndex::Link> EntryIndex::match(std::span<const std::int32_t> tokens) {
  // A chain, by its last link. Each entry has one parent, so each is reached once at most, however entries are shaped.
  struct Reached {
    Link link;
    std::uint32_t covered = 0;
    std::size_t before = 0;  // index of the chain that it continues
  };
  std::vector<Reached> reached = {{}};  // no entry covers nothing
  std::size_t best = 0;
  for (std::size_t at = 0; at < reached.size(); ++at) {
    const auto [link, covered, before] = reached[at];
    if (link.entry && link.matched < link.entry->tokens.size()) continue;
    for (const Link& next : match_children(link.entry ? link.entry->key : EntryKey{}, tokens.subspan(covered))) {
      // A stored manifest may claim any position: keys in its cache were rotated for it, so it must be where it stands.
      if (next.entry->first_position != covered) continue;
      reached.push_back({next, covered + next.matched, at});
      if (reached.back().covered > reached[best].covered) best = reached.size() - 1;
    }
  }
  std::vector<Link> chain;
  for (; best != 0; best = reached[best].before) chain.push_back(reached[best].link);
  std::ranges::reverse(chain);
  return chain;
}

std::vector<EntryIndex::Link> EntryIndex::match_children(const EntryKey& parent,
                                                         std::span<const std::int32_t> tokens) const {
  const auto at = children_.find(parent);
  if (at == children_.end() || tokens.empty()) return {};
  const Children& children = at->second;

  std::vector<Link> found;
  const auto consider = [&](Entry* entry) {
    const std::uint32_t matched = common_prefix(entry->tokens, tokens);
    if (matched > 0) found.push_back({entry, matched});
    return matched;
  };

  // The neighbours of `tokens` in the order share the longest prefix with it. Shorter entries that are whole prefixes
  // of it may continue in entries of their own: they are found by searching for ever shorter prefixes.
  auto next = children.lower_bound(tokens);
  if (next != children.end()) consider(next->second);
  while (next != children.begin()) {
    const std::uint32_t matched = consider(std::prev(next)->second);
    if (matched == 0) break;
    const bool whole = std::prev(next)->first.size() == matched;
    next = whole ? std::prev(next) : children.upper_bound(tokens.first(matched));
  }
  return found;
}

std::vector<Entry*> EntryIndex::all() {
  std::vector<Entry*> entries;
  for (const auto& [key, entry] : entries_) entries.push_back(entry.get());
  return entries;
}

std::vector<const Entry*> EntryIndex::all() const {
  std::vector<const Entry*> entries;
  for (const auto& [key, entry] : entries_) entries.push_back(entry.get());
  return entries;
}

Status EntryIndex::check_integrity() const {
  std::size_t listed = 0;
  for (const auto& [parent, children] : children_) {
    listed += children.size();
    for (const auto& [tokens, entry] : children) {
      if (entry->parent != parent || entry->tokens != tokens) {
        return fail(ErrorCode::kInternal, "entry {} is listed under the wrong parent", entry->key.hex());
      }
    }
    const Entry* above = find(parent);
    if (above && above->children != children.size()) {
      return fail(ErrorCode::kInternal, "entry {} counts {} children of {}", parent.hex(), above->children,
                  children.size());
    }
  }
  if (listed != entries_.size()) {
    return fail(ErrorCode::kInternal, "{} entries, {} listed as children", entries_.size(), listed);
  }
  for (const auto& [key, entry] : entries_) {
    for (const StoredObject& object : entry->objects) {
      if (object.manifest->key != key || object.strata == 0 || object.strata > object.manifest->strata_tokens.size()) {
        return fail(ErrorCode::kInternal, "entry {} lists an object that is not its own", key.hex());
      }
    }
  }
  return {};
}

}  // namespace shale
