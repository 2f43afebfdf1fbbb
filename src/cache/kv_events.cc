#include "cache/kv_events.h"

#include <algorithm>
#include <utility>

namespace shale {
namespace {

constexpr std::size_t kRemovedTogetherMax = 256;

// Whether these are the keys of blocks without a salt, computed as prompts are.
bool plain(const StoreEvent& event) {
  return event.tenant.empty() && event.exact && !event.tokens.empty() &&
         block_keys_after("", event.parent, event.tokens, event.block_tokens) == event.keys;
}

}  // namespace

std::uint64_t KvEvents::name_of(const BlockKey& key) {
  std::uint64_t name = 0;  // a key is a big-endian number, as vLLM reads it
  for (const std::byte byte : std::span(key).last(sizeof name)) name = name << 8 | std::to_integer<std::uint64_t>(byte);
  return name;
}

void KvEvents::in_pool(std::span<const std::int32_t> tokens, std::span<const BlockKey> keys) {
  const std::lock_guard lock(mutex_);
  tell_stored(KvMedium::kGpu, {BlockKey{}, 0, tokens, keys},
              [&](std::uint64_t name) { return pooled_.insert(name).second; });
}

void KvEvents::evicted(std::uint64_t name) {
  const std::lock_guard lock(mutex_);
  if (pooled_.erase(name) > 0) tell_removed(KvMedium::kGpu, name);
}

void KvEvents::at_rest(const StoreEvent& event) {
  const bool lost = event.kind == StoreEvent::Kind::kLost;
  const bool told = !lost && event.tier < options_.tiers.size() && options_.tiers[event.tier] && event.exact;
  const bool stored = told && event.kind == StoreEvent::Kind::kStored && plain(event);
  const std::lock_guard lock(mutex_);
  if (lost) clear();
  if (!told) return;
  const KvMedium medium = *options_.tiers[event.tier];
  const std::uint8_t there = tiers_on(medium), tier = static_cast<std::uint8_t>(1u << event.tier);
  if (stored) {
    tell_stored(medium, {event.parent, event.first_block, event.tokens, event.keys}, [&](std::uint64_t name) {
      return (std::exchange(at_rest_[name], at_rest_[name] | tier) & there) == 0;
    });
  }
  if (event.kind != StoreEvent::Kind::kRemoved) return;
  for (const BlockKey& key : event.keys) {
    const auto known = at_rest_.find(name_of(key));
    if (known == at_rest_.end() || (known->second & tier) == 0) continue;
    known->second &= static_cast<std::uint8_t>(~tier);
    if ((known->second & there) == 0) tell_removed(medium, known->first);
    if (known->second == 0) at_rest_.erase(known);
  }
}

std::vector<KvEvent> KvEvents::take() {
  const std::lock_guard lock(mutex_);
  blocks_waiting_ = 0;
  return std::exchange(events_, {});
}

void KvEvents::tell_stored(KvMedium medium, const Chain& chain, const std::function<bool(std::uint64_t)>& news) {
  if (chain.keys.empty()) return;
  const std::size_t block = chain.tokens.size() / chain.keys.size(), parts = options_.block_tokens / block;
  KvEvent event;
  const auto end_run = [&] {
    if (!event.blocks.empty()) push(std::exchange(event, {}));
  };
  for (std::size_t i = 0; i < chain.keys.size(); ++i) {
    const bool ends_one = (chain.first + i + 1) % parts == 0 && i + 1 >= parts;  // and begins here, too
    if (!ends_one) continue;
    const std::size_t first = i + 1 - parts;
    const std::uint64_t name = name_of(chain.keys[i]);
    if (!news(name)) {
      end_run();
      continue;
    }
    if (event.blocks.empty()) {
      event = {.kind = KvEvent::Kind::kStored, .medium = medium, .block_tokens = options_.block_tokens};
      if (chain.first + first > 0) event.parent = name_of(first > 0 ? chain.keys[first - 1] : chain.parent);
    }
    event.blocks.push_back(name);
    const auto tokens = chain.tokens.subspan(first * block, options_.block_tokens);
    event.tokens.insert(event.tokens.end(), tokens.begin(), tokens.end());
  }
  end_run();
}

void KvEvents::tell_removed(KvMedium medium, std::uint64_t name) {
  const bool together = !events_.empty() && events_.back().kind == KvEvent::Kind::kRemoved &&
                        events_.back().medium == medium && events_.back().blocks.size() < kRemovedTogetherMax;
  if (!together) return push({.kind = KvEvent::Kind::kRemoved, .medium = medium, .blocks = {name}});
  events_.back().blocks.push_back(name);
  ++blocks_waiting_;
}

void KvEvents::push(KvEvent event) {
  blocks_waiting_ += event.blocks.size();
  events_.push_back(std::move(event));
  if (blocks_waiting_ > options_.blocks_max) clear();
}

void KvEvents::clear() {
  blocks_waiting_ = 0;
  events_.assign(1, {});
  pooled_.clear();
  at_rest_.clear();
}

std::uint8_t KvEvents::tiers_on(KvMedium medium) const {
  unsigned bits = 0;
  for (std::size_t tier = 0; tier < options_.tiers.size(); ++tier) {
    bits |= static_cast<unsigned>(options_.tiers[tier] == medium) << tier;
  }
  return static_cast<std::uint8_t>(bits);
}

}  // namespace shale
