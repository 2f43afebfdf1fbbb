// The variants that a group of extents can become, and what each costs and is worth.
#include <algorithm>
#include <cmath>
#include <limits>

#include "codec/extent_layout.h"
#include "store/extent_placer.h"
#include "store/store_core.h"

namespace shale {
namespace {

constexpr double kDearSecondsPerBlock = 1;  // of computing, where nobody said: more than any load

constexpr float kLeastImportance = 1e-6F;  // of an extent that holds nothing important: known, and last

bool same_keep(double a, double b) { return std::abs(a - b) < 1e-6; }

}  // namespace

std::uint32_t ExtentPlacer::number_of(const Extent& extent) {
  const auto known = numbers_.find(extent.method);
  if (known != numbers_.end()) return known->second;
  const Method& method = core_.method_of(extent);
  const auto at = static_cast<std::uint32_t>(std::ranges::find(methods_, method) - methods_.begin());
  if (at == methods_.size()) {
    methods_.push_back(method);
    needs_no_ranking_.push_back(false);
  }
  return numbers_[extent.method] = at;
}

bool ExtentPlacer::may_remove(std::uint32_t tier) const {
  const TierState& state = core_.tiers[tier];
  return !state.tier().read_only() && !state.config.shared && (state.config.folder.empty() || state.leads);
}

// On the fastest tier that has any variant: the exact one, else the one of which most is known to be expected.
std::optional<Variant> ExtentPlacer::present(const Group& group) const {
  const auto place = [](const Extent& each) { return std::pair(each.fastest_tier(), !each.exact); };
  const auto worth = [this](const Extent& each) { return std::tuple(measured(each), each.quality, each.keep); };
  const Extent* best = nullptr;
  for (const ExtentId id : group.members) {
    const Extent& extent = core_.index.at(id);
    if (extent.tiers == 0) continue;
    const bool nearer = !best || place(extent) < place(*best);
    if (nearer || (place(extent) == place(*best) && worth(extent) > worth(*best))) best = &extent;
  }
  if (!best) return std::nullopt;
  return Variant{numbers_.at(best->method), grid_keep(best->keep), best->fastest_tier()};
}

// Asked of planners for which requests read only a part of what is kept.
double ExtentPlacer::importance(const Group& group) {
  const double read_keep = core_.options.placement.options.read_keep;
  if (read_keep >= 1) return 1;
  for (const ExtentId id : group.members) {
    Extent& extent = core_.index.at(id);
    if (extent.importance > 0) return extent.importance;
    const auto manifest = core_.manifests.get(extent.name);
    if (!manifest || manifest->tiers.empty()) continue;
    const TierMap& tiers = manifest->tiers;
    std::uint64_t read = 0;
    for (std::uint32_t head = 0; head < tiers.heads(); ++head) {
      read += tiers.count(head, 0, tiers.tokens(), 0, tiers_for(read_keep));
    }
    const double share = static_cast<double>(read) / (1.0 * tiers.heads() * tiers.tokens());
    return extent.importance = std::max(static_cast<float>(share), kLeastImportance);
  }
  return 1;
}

std::optional<ExtentId> ExtentPlacer::holder(GroupId group, std::uint32_t method, double keep) const {
  std::optional<ExtentId> best;
  for (const ExtentId id : groups_[group].members) {
    const Extent& extent = core_.index.at(id);
    if (extent.tiers == 0 || numbers_.at(extent.method) != method || extent.keep < keep - 1e-6) continue;
    if (extent.damaged != 0) continue;
    if (!best || extent.fastest_tier() < core_.index.at(*best).fastest_tier()) best = id;
  }
  return best;
}

bool ExtentPlacer::can_become(const Extent& exact, std::uint32_t method) const {
  const KvGeometry& geometry = core_.options.geometry;
  const Realm& realm = core_.index.realms()[exact.realm];
  if (geometry.opaque() || realm.hash != realm_of(core_.options, realm.tenant)) return false;
  if (needs_no_ranking_[method]) return true;
  return core_.index.has_ranking(exact, methods_[method].ranking());
}

// Estimates by the layout of one that ranks all tokens alike; what is packed and what padding adds, about.
std::uint64_t ExtentPlacer::estimated_bytes(std::uint32_t method, double keep, const Extent& like) {
  std::uint64_t& bytes = sizes_[{method, like.blocks, keep}];
  if (bytes != 0) return bytes;
  const KvGeometry& geometry = core_.options.geometry;
  const std::uint32_t tokens = like.blocks * geometry.block_tokens;
  const std::uint32_t heads = geometry.layers * geometry.kv_heads;
  const auto layers = suitable_layers_per_group(geometry, methods_[method], tokens);
  if (!layers) return bytes = like.bytes;
  const std::uint32_t groups = (geometry.layers + *layers - 1) / *layers;
  const bool ranked = !methods_[method].scorer.empty();
  std::uint64_t before = 0, blobs = 0;
  for (std::uint32_t tier = 0; tier < (ranked ? tiers_for(keep) : 1); ++tier) {
    const double up_to = ranked ? kKeepGrid[tier] : 1;
    const std::uint64_t so_far =
        extent_bytes(geometry, methods_[method], tokens, up_to, core_.options.model.windows).value_or(0);
    bytes += groups * bytes_at_rest((so_far - before) / groups);
    before = so_far;
    blobs += groups;
  }
  const std::uint64_t per_block = sizeof(BlockKey) + 4 * geometry.block_tokens;
  const std::uint64_t manifest = 512 + like.blocks * per_block + 24 * blobs * like.chunks;
  return bytes += bytes_at_rest(manifest + (ranked ? TierMap::bytes_of(heads, tokens) : 0));
}

std::vector<ExtentPlacer::Form> ExtentPlacer::forms(const Group& group, const std::optional<New>& fresh) {
  const auto& quality_of = core_.options.placement.quality;
  const Extent& any = core_.index.at(group.members.front());
  const Extent* exact = nullptr;
  std::vector<Form> forms;
  const auto find = [&](std::uint32_t method, double keep) {
    return std::ranges::find_if(forms, [&](const Form& form) { return form.method == method && form.keep == keep; });
  };
  for (const ExtentId id : group.members) {
    const Extent& extent = core_.index.at(id);
    const bool is_new = fresh && fresh->id == id;
    if (!is_new && extent.tiers == 0) continue;
    const bool movable = extent.damaged == 0 && (is_new || !state_->silent(extent.fastest_tier()));
    const Form form{number_of(extent), grid_keep(extent.keep), extent.quality, extent.bytes, movable};
    auto same = find(form.method, form.keep);
    if (same == forms.end()) same = forms.insert(same, form);
    same->movable = same->movable || movable;
    if (extent.exact && movable) exact = &extent;
  }
  // What is pinned stays what it is.
  const double wall = core_.wall_s();
  const bool pinned = std::ranges::any_of(group.members, [&](ExtentId id) { return core_.index.at(id).pinned(wall); });
  if ((fresh && !fresh->may_become) || pinned || !quality_of) return forms;
  const std::size_t there = forms.size();
  for (std::uint32_t method = 1; method < methods_.size(); ++method) {
    const bool ranked = !methods_[method].scorer.empty();
    for (const double keep : kKeepGrid) {
      if ((!ranked && keep != 1) || find(method, keep) != forms.end()) continue;
      const bool cut = std::ranges::any_of(std::span(forms).first(there), [&](const Form& form) {
        return form.method == method && form.keep > keep && form.movable;
      });
      if (!cut && (!exact || !can_become(*exact, method))) continue;
      if (const auto quality = quality_of(any.run, methods_[method], keep); quality > 0) {
        forms.push_back({method, keep, *quality, estimated_bytes(method, keep, any)});
      }
    }
  }
  return forms;
}

double ExtentPlacer::recompute_s(const Group& group) const {
  float recompute = 0;
  for (const ExtentId id : group.members) recompute = std::max(recompute, core_.index.at(id).recompute_s);
  if (recompute > 0) return recompute;
  const Extent& any = core_.index.at(group.members.front());
  const std::uint32_t block_tokens = core_.options.geometry.block_tokens;
  const auto& estimate = core_.options.placement.recompute_s;
  return estimate ? estimate(any.blocks * block_tokens, any.first_block * block_tokens)
                  : kDearSecondsPerBlock * any.blocks;
}

bool ExtentPlacer::note_accesses(const Group& group, const Variant& current, PlacedPrefix& placed) const {
  const double wall = core_.wall_s(), now = core_.clock.now_s();
  bool must_stay = false;
  const auto lowest = core_.tier_count() - 1;
  placed.last_access_s = -std::numeric_limits<double>::infinity();
  for (const ExtentId id : group.members) {
    const Extent& extent = core_.index.at(id);
    placed.frequency = std::max(placed.frequency, extent.frequency_at(wall, core_.options.frequency_half_life_s));
    placed.last_access_s = std::max(placed.last_access_s, now - std::max(0.0, wall - extent.accessed_s));
    must_stay = must_stay || extent.pinned(wall);
    for (std::uint32_t tier = 0; tier <= lowest; ++tier)
      must_stay = must_stay || (extent.on(tier) && !may_remove(tier));
    const bool is_copy = extent.exact && extent.on(lowest) && !extent.pinned(wall) && !group.no_full_copy;
    if (is_copy && current.tier < lowest) placed.full_copy_bytes = extent.bytes;
  }
  return must_stay;
}

PlacedPrefix ExtentPlacer::offer(const Group& group, const std::optional<New>& fresh) {
  const Variant current = (group.wanted && !group.hangs ? group.wanted : present(group)).value_or(Variant());
  PlacedPrefix placed{.id = group.hash, .frequency = 0, .accesses = 1, .candidates = {}, .current = kDropped};
  placed.importance = importance(group);
  placed.pinned = group.wanted.has_value() || core_.clock.now_s() < group.quiet_until_s;
  const bool must_stay = note_accesses(group, current, placed);
  const auto lowest = core_.tier_count() - 1;
  const Extent& any = core_.index.at(group.members.front());
  const double recompute_s = this->recompute_s(group);
  const std::vector<Form> forms = this->forms(group, fresh);
  placed.candidates.reserve(forms.size() * (lowest + 1) + 1);  // one in memory for every extent: no slack
  const auto add = [&](const Form& form, std::uint32_t tier) {
    const double load_s = core_.load_s(methods_[form.method], form.bytes, tier);
    placed.candidates.push_back({.method = form.method,
                                 .keep = form.keep,
                                 .tier = tier,
                                 .bytes = form.bytes,
                                 .quality = form.quality,
                                 .ttft_s = std::min(load_s, recompute_s)});
  };
  // The lowest tier keeps what is exact as it is where it is not bounded; where it is, compressing there frees bytes.
  const bool exact = std::ranges::any_of(forms, [](const Form& form) { return form.method == kFullMethod; });
  const bool compress_lowest = !exact || core_.tiers[lowest].tier().capacity_bytes() != kUnlimited;
  for (std::uint32_t tier = 0; tier <= lowest; ++tier) {
    for (const Form& form : forms) {
      const bool stays = current.tier == tier && current.method == form.method;
      const bool is_current = stays && same_keep(current.keep, form.keep);
      if (!is_current && (!form.movable || core_.tiers[tier].tier().read_only())) continue;
      const bool asked_for = fresh && !fresh->may_become;
      const bool may_lie = tier < lowest || compress_lowest || form.method == kFullMethod || asked_for;
      if (!is_current && !may_lie && !stays) continue;
      if (is_current) placed.current = static_cast<std::uint32_t>(placed.candidates.size());
      add(form, tier);
    }
  }
  if (placed.current == kDropped && current.tier != kDropped) {  // on its way, and not there yet
    const auto saved = std::ranges::find_if(group.members, [&](ExtentId id) {
      const Extent& extent = core_.index.at(id);
      return number_of(extent) == current.method && same_keep(grid_keep(extent.keep), current.keep);
    });
    const std::uint64_t bytes = saved != group.members.end() ? core_.index.at(*saved).bytes
                                                             : estimated_bytes(current.method, current.keep, any);
    placed.current = static_cast<std::uint32_t>(placed.candidates.size());
    add({current.method, current.keep, 1, bytes}, current.tier);
  }
  if (!must_stay || placed.current == kDropped) {
    if (placed.current == kDropped) placed.current = static_cast<std::uint32_t>(placed.candidates.size());
    placed.candidates.push_back(
        {.method = kFullMethod, .keep = 1, .tier = kDropped, .bytes = 0, .quality = 1, .ttft_s = recompute_s});
  }
  return placed;
}

}  // namespace shale
