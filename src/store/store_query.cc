// What can be asked of a store beside loading and saving: what is there, by chain, by run or all of it, and what to do
// with it.
#include <algorithm>
#include <utility>

#include "store/store.h"
#include "store/store_core.h"

namespace shale {

SpanFilter StoreCore::filter(const StoreNeeds& needs) {
  const auto least = static_cast<float>(needs.quality_min);
  SpanFilter filter{needs.exact, least, wall_s(), needs.exact_after, needs.tiers_excluded};
  if (needs.method) {
    filter.method = index.text(needs.method->text());
    filter.keep = static_cast<float>(grid_keep(needs.keep));
  }
  if (needs.exact && !needs.method) return filter;
  filter.worth = [this, excluded = needs.tiers_excluded](const Extent& extent) {
    return options.placement.alpha * extent.quality -
           load_s(method_of(extent), extent.bytes, extent.fastest_tier(excluded));
  };
  return filter;
}

const Method& StoreCore::method_of(const Extent& extent) {
  for (std::size_t m = methods_.size(); m < index.texts().size(); ++m) {
    const std::string& text = index.texts()[m];
    methods_.push_back(Method::parse(text).value_or(Method{.scorer = {}, .quantizer = text}));
  }
  return methods_[extent.method];
}

double StoreCore::load_s(const Method& method, std::uint64_t bytes, std::uint32_t tier) const {
  const TierSpeed speed = tiers[tier].tier().speed();
  const auto& decode_s = options.placement.decode_s;
  const double read_s = speed.read_bytes_per_s > 0 ? static_cast<double>(bytes) / speed.read_bytes_per_s : 0;
  return speed.latency_s + read_s + (decode_s && !method.is_full() ? decode_s(method.quantizer, bytes) : 0);
}

float StoreCore::keep_read(const Extent& extent, const StoreNeeds& needs) {
  if (!needs.method || method_of(extent) != *needs.method) return extent.keep;
  return std::min(extent.keep, static_cast<float>(grid_keep(needs.keep)));
}

std::uint64_t StoreCore::bytes_read(const Extent& extent, std::uint32_t blocks, float keep) const {
  const std::uint64_t bytes = extent.bytes * blocks / extent.blocks;
  if (keep >= extent.keep) return bytes;
  const bool known = extent.importance > 0 && keep == static_cast<float>(options.placement.options.read_keep);
  return static_cast<std::uint64_t>(static_cast<double>(bytes) * (known ? extent.importance : keep / extent.keep));
}

StoreLookup StoreCore::describe(const std::vector<ChainSpan>& spans, const StoreNeeds& needs) {
  StoreLookup found;
  std::array<std::uint64_t, kStoreTiersMax> bytes = {};
  bool exact = true;
  for (const ChainSpan& span : spans) {
    const Extent& extent = index.at(span.extent);
    const float keep = keep_read(extent, needs);
    const std::uint32_t tier = extent.fastest_tier(needs.tiers_excluded);
    const std::uint64_t own_bytes = bytes_read(extent, span.blocks, keep);
    exact = exact && extent.exact;
    found.blocks = span.first_block + span.blocks;
    if (exact) found.exact_blocks = found.blocks;
    found.quality = std::min<double>(found.quality, extent.quality);
    found.tier = std::max(found.tier, tier);
    // What is asked for and not yet read comes first, and manifests do.
    const Tier& from = tiers[tier].tier();
    bytes[tier] += own_bytes;
    const double eta_s = from.speed().latency_s + from.read_eta_s(bytes[tier] + tiers[tier].asked_bytes);
    found.ready_s = std::max(found.ready_s, eta_s);
    found.spans.push_back({span.first_block, span.blocks, tier, method_of(extent), grid_keep(keep), extent.quality,
                           own_bytes, extent.run, extent.exact, found.ready_s});
  }
  return found;
}

void StoreCore::remove_everywhere(ExtentId id) {
  ++removals;
  use(id);
  for (std::uint32_t t = 0; t < tier_count(); ++t) {
    if (index.at(id).on(t)) remove_from(id, t);
  }
  unuse(id);
}

StoreExtent StoreCore::describe(const Extent& extent) {
  const double now = wall_s();
  StoreExtent told;
  told.name = extent.name;
  told.run = extent.run;
  told.tenant = index.realms()[extent.realm].tenant;
  told.method = method_of(extent);
  told.keep = grid_keep(extent.keep);
  told.quality = extent.quality;
  told.exact = extent.exact;
  told.first_block = extent.first_block;
  told.blocks = extent.blocks;
  told.bytes = extent.bytes;
  for (std::uint32_t t = 0; t < tier_count(); ++t) {
    if (extent.on(t)) told.tiers.push_back(t);
  }
  if (extent.label) told.label = *extent.label;
  told.frequency = extent.frequency_at(now, options.frequency_half_life_s);
  told.accessed_s = extent.accessed_s;
  told.expires_s = extent.expires_s;
  told.pinned = extent.pinned(now);
  return told;
}

namespace {

// Calls visit(id) for each extent that holds leading blocks; how many blocks that is.
template <class Visit>
std::uint32_t for_prefix(StoreCore& core, std::span<const BlockKey> keys, std::string_view tenant, const Visit& visit) {
  const std::lock_guard lock(core.mutex);
  const auto spans = core.index.match(keys, core.tenant(tenant).realm, core.filter({.exact = false}));
  for (const ChainSpan& span : spans) visit(span);
  return spans.empty() ? 0 : spans.back().first_block + spans.back().blocks;
}

}  // namespace

std::uint32_t Store::touch(std::span<const BlockKey> keys, std::string_view tenant) {
  return for_prefix(*core_, keys, tenant, [&](const ChainSpan& span) {
    core_->access(span.extent, static_cast<double>(span.blocks) / core_->index.at(span.extent).blocks);
  });
}

std::uint32_t Store::pin(std::span<const BlockKey> keys, std::string_view tenant) {
  return for_prefix(*core_, keys, tenant, [&](const ChainSpan& span) { core_->pin(span.extent, true); });
}

std::uint32_t Store::unpin(std::span<const BlockKey> keys, std::string_view tenant) {
  return for_prefix(*core_, keys, tenant, [&](const ChainSpan& span) { core_->pin(span.extent, false); });
}

void Store::set_quota(std::string_view tenant, std::uint64_t bytes_max) {
  const std::lock_guard lock(core_->mutex);
  core_->placer.set_quota(core_->tenant(tenant), bytes_max);
}

std::uint32_t Store::remove(std::span<const BlockKey> keys, std::string_view tenant) {
  StoreCore& core = *core_;
  const std::lock_guard lock(core.mutex);
  const double wall = core.wall_s();
  std::uint32_t blocks = 0;
  for (std::uint32_t t = 0; t < core.tier_count(); ++t) core.find_unread(t);
  for (const ExtentId id : core.index.within(keys, core.tenant(tenant).realm)) {
    const Extent& extent = core.index.at(id);
    if (extent.pinned(wall)) continue;
    blocks += extent.blocks;
    core.remove_everywhere(id);
  }
  return blocks;
}

StoreStats Store::stats() const {
  StoreCore& core = *core_;
  const std::lock_guard lock(core.mutex);
  StoreStats stats = core.counts;
  for (const auto& [name, tenant] : core.tenants) {
    stats.tenants.push_back(tenant.counts);
    stats.tenants.back().bytes = core.bytes_of(tenant);
  }
  for (const TierState& tier : core.tiers) {
    stats.tiers.push_back(tier.counts);
    stats.tiers.back().bytes = tier.known_bytes;
    stats.tiers.back().capacity_bytes = tier.capacity_bytes();
    stats.tiers.back().trouble = tier.trouble();
    stats.tiers.back().unremoved = tier.removals.why();
  }
  stats.extents = core.index.extents();
  stats.chunks = core.index.chunks();
  stats.chunks_saving = core.saving.size();
  stats.bytes_left = stats.chunks_saving * core.options.geometry.bytes(core.options.chunk_tokens) +
                     core.staging.used(StagedFor::kCopies);
  stats.moves_left = core.placer.moves_left();
  stats.index_bytes = core.index.bytes();
  stats.events_lost = core.events.lost();
  stats.staged_bytes = core.staging.used();
  stats.encode_seconds = core.encode_seconds;
  stats.encoded_bytes = core.encoded_bytes;
  stats.full_copy_bytes = core.placer.full_copy_bytes();
  return stats;
}

std::uint32_t Store::remove_run(const Hash128& run) {
  StoreCore& core = *core_;
  const std::lock_guard lock(core.mutex);
  const double wall = core.wall_s();
  std::vector<ExtentId> found;
  core.index.for_each([&](ExtentId id, const Extent& extent) {
    if (extent.run == run && extent.tiers != 0 && !extent.pinned(wall)) found.push_back(id);
  });
  for (const ExtentId id : found) core.remove_everywhere(id);
  return static_cast<std::uint32_t>(found.size());
}

void Store::place_again(const Hash128& run) {
  StoreCore& core = *core_;
  const std::lock_guard lock(core.mutex);
  core.index.for_each([&](ExtentId id, const Extent& extent) {
    if (extent.run == run && extent.tiers != 0) core.placer.changed(id);
  });
}

void Store::place_again(std::span<const BlockKey> keys, std::string_view tenant) {
  for_prefix(*core_, keys, tenant, [&](const ChainSpan& span) { core_->placer.changed(span.extent); });
}

// Where a chain parts from an extent, another one may hold more of that; what is forgotten others may hold exactly.
std::uint32_t Store::in_pool(std::span<const BlockKey> keys, std::uint32_t blocks, PoolNews news,
                             std::string_view tenant, bool lossy) {
  return for_prefix(*core_, keys, tenant, [&](const ChainSpan& span) {
    const std::uint32_t held = std::min(blocks > span.first_block ? blocks - span.first_block : 0, span.blocks);
    const std::uint32_t blocks_of_extent = core_->index.at(span.extent).blocks;
    const bool at_least = held == span.blocks && (held < blocks_of_extent || news == PoolNews::kForgotten);
    core_->placer.in_pool(span.extent, static_cast<double>(held) / blocks_of_extent, at_least ? PoolNews::kHeld : news,
                          lossy);
  });
}

Problem Store::problem() const {
  const std::lock_guard lock(core_->mutex);
  return core_->placer.problem();
}

std::vector<StoreExtent> Store::inspect(std::span<const BlockKey> keys, std::string_view tenant) const {
  StoreCore& core = *core_;
  const std::lock_guard lock(core.mutex);
  std::vector<StoreExtent> extents;
  for (const ExtentId id : core.index.within(keys, core.tenant(tenant).realm)) {
    extents.push_back(core.describe(core.index.at(id)));
  }
  return extents;
}

void Store::for_each_extent(const std::function<void(const StoreExtent&)>& visit) const {
  std::vector<StoreExtent> extents;
  {
    const std::lock_guard lock(core_->mutex);
    core_->index.for_each([&](ExtentId, const Extent& extent) {
      if (extent.tiers != 0) extents.push_back(core_->describe(extent));
    });
  }
  for (const StoreExtent& extent : extents) visit(extent);
}

Status Store::verify(const Hash128& name, std::uint32_t tier) {
  StoreCore& core = *core_;
  std::uint64_t tag = 0;
  double keep = 1;
  {
    const std::lock_guard lock(core.mutex);
    const auto id = core.index.find(name);
    if (!id || tier >= core.tier_count() || !core.index.at(*id).on(tier)) {
      return fail(ErrorCode::kNotFound, "extent {} does not lie there", name.hex());
    }
    tag = core.index.at(*id).names[0];
    keep = core.index.at(*id).keep;
  }
  return verify_extent(core.tiers[tier].tier(), name, tag, keep);
}

}  // namespace shale
