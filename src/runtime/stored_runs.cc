#include "runtime/stored_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <unordered_map>

#include "cache/cache.h"
#include "core/clock.h"
#include "core/interrupt.h"
#include "core/sha256.h"
#include "extents/store_tiers.h"
#include "runtime/serving.h"

namespace shale {
namespace {

constexpr std::size_t kPrefixDigitsMin = 4;

// What the indexes beside the tiers know of an extent.
struct Use {
  double frequency = 0;
  double pinned_until_s = 0;  // since 1970
};
using Uses = std::unordered_map<Hash128, Use>;  // by extent
// Names are of one namespace and tenant.
using KeyOfTenant = std::tuple<NamespaceHash, Hash128, BlockKey>;

bool is_name_prefix(std::string_view text) {
  return text.size() >= kPrefixDigitsMin && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

KeyOfTenant parent_key(const StoredVariant& variant) {
  return {variant.first().name_space, variant.first().tenant, variant.first().parent};
}

std::string hex(const NamespaceHash& hash) {
  std::string text;
  for (const std::byte byte : hash) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

Result<std::unique_ptr<StoredTier>> open_tier(StoreTier opened) {
  auto tier = std::make_unique<StoredTier>();
  tier->tier = std::move(opened.tier);
  if (!opened.folder.empty() && !tier->tier->read_only()) {
    SHALE_ASSIGN(tier->folder, IndexFolder::open(opened.folder));
  }
  return tier;
}

Uses uses_of(const StoredListing& listing) {
  using Type = IndexRecord::Type;
  Uses uses;
  for (const auto& tier : listing.tiers) {
    if (!tier->folder) continue;
    static_cast<void>(tier->folder->load([&](const IndexRecord& record) {
      if (record.type == Type::kStored) uses[record.facts.name].frequency = record.facts.frequency;
      if (record.type == Type::kUsed) uses[record.name].frequency = record.frequency;
      if (record.type == Type::kLease) {  // of any process: what one has unpinned another may hold
        Use& use = uses[record.name];
        use.pinned_until_s = std::max(use.pinned_until_s, record.until_s);
      }
    }));
  }
  return uses;
}

// Names of models are a help for people: a metadata store that cannot be read gives none.
std::map<NamespaceHash, std::string> model_names(const std::filesystem::path& file, StoredListing& listing) {
  std::map<NamespaceHash, std::string> names;
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return names;
  const auto any = MetadataStore::open(file, {});
  const auto models = any ? (*any)->models() : std::unexpected(any.error());
  if (!models) return names;
  for (const ModelRecord& model : *models) {
    const std::string name_space = name_space_of({model.fingerprint, model.name});
    names[sha256(std::as_bytes(std::span(name_space)))] = model.name;
    if (auto metadata_store = MetadataStore::open(file, model.fingerprint))
      listing.metadata_stores.push_back(std::move(*metadata_store));
  }
  return names;
}

// Every block that is there, and its run.
void find_parents(std::vector<StoredVariant>& variants) {
  std::map<KeyOfTenant, Hash128> runs;
  for (const StoredVariant& variant : variants) {
    for (const ScannedExtent* extent : variant.extents) {
      const ExtentManifest& m = *extent->manifest;
      for (const BlockKey& key : m.keys) runs[{m.name_space, m.tenant, key}] = m.run;
    }
  }
  for (StoredVariant& variant : variants) {
    const auto parent = runs.find(parent_key(variant));
    if (parent != runs.end()) variant.parent = parent->second;
  }
}

// Sorts what was scanned into runs, and what cannot be used.
void sort_out(StoredListing& listing, const std::map<NamespaceHash, std::string>& names) {
  Uses uses = uses_of(listing);
  const double now_s = wall_clock_s();
  using Order = std::tuple<std::string, Hash128, Hash128, std::size_t, Method, double>;  // model, tenant, run, tier, …
  std::map<Order, StoredVariant> variants;
  for (std::size_t t = 0; t < listing.tiers.size(); ++t) {
    StoredTier* const tier = listing.tiers[t].get();
    for (const ScannedExtent& extent : listing.scanned[t]) {
      if (extent.error) {
        const bool unfinished = extent.error->code == ErrorCode::kNotFound;
        (unfinished ? listing.unfinished : listing.broken).push_back({tier, &extent});
        continue;
      }
      const ExtentManifest& m = *extent.manifest;
      const auto known = names.find(m.name_space);
      const std::string model = known == names.end() ? hex(m.name_space).substr(0, 12) : known->second;
      StoredVariant& variant = variants[{model, m.tenant, m.run, t, m.method, extent.keep}];
      variant.tier = tier;
      variant.model = model;
      variant.extents.push_back(&extent);
      const Use& use = uses[extent.name];
      variant.frequency = std::max(variant.frequency, use.frequency);
      variant.pinned |= use.pinned_until_s > now_s;
    }
  }
  for (auto& [order, variant] : variants) {
    std::ranges::sort(variant.extents, {},
                      [](const ScannedExtent* extent) { return extent->manifest->first_position; });
    listing.variants.push_back(std::move(variant));
  }
  std::ranges::stable_sort(listing.variants, {}, [](const StoredVariant& variant) {
    return std::tuple(variant.model, variant.first().first_position, variant.run());
  });
  find_parents(listing.variants);
}

}  // namespace

std::uint32_t StoredVariant::tokens() const {
  return std::accumulate(extents.begin(), extents.end(), 0u,
                         [](std::uint32_t sum, const ScannedExtent* extent) { return sum + extent->manifest->tokens; });
}

std::uint64_t StoredVariant::bytes() const {
  return std::accumulate(extents.begin(), extents.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const ScannedExtent* extent) { return sum + extent->bytes; });
}

Result<StoredListing> list_stored(const TierChoice& choice) {
  const static RealClock clock;
  StoredListing listing;
  SHALE_ASSIGN(std::vector<TierSpec> specs, tier_specs(choice));
  // Looking leaves no folder where there was none.
  std::erase_if(specs,
                [](const TierSpec& spec) { return !spec.place.empty() && !std::filesystem::exists(spec.place); });
  SHALE_ASSIGN(std::vector<StoreTier> tiers, open_store_tiers(specs, clock));
  for (StoreTier& opened : tiers) {
    if (!opened.tier->persistent()) continue;
    SHALE_ASSIGN(auto tier, open_tier(std::move(opened)));
    SHALE_ASSIGN(auto extents, scan_extents(*tier->tier));
    listing.tiers.push_back(std::move(tier));
    listing.scanned.push_back(std::move(extents));
  }
  sort_out(listing,
           model_names(metadata_store_file(specs).value_or(cache_folder(choice) / kMetadataStoreName), listing));
  return listing;
}

Result<std::vector<const StoredVariant*>> find_run(const StoredListing& listing, std::string_view name) {
  std::vector<const StoredVariant*> found;
  const auto find = [&](const auto& is_meant) {
    if (!found.empty()) return;
    for (const StoredVariant& variant : listing.variants) {
      if (is_meant(variant)) found.push_back(&variant);
    }
  };
  if (is_name_prefix(name)) {
    find([&](const StoredVariant& variant) { return variant.run().hex().starts_with(name); });
  }
  find([&](const StoredVariant& variant) { return variant.first().label == name; });
  find([&](const StoredVariant& variant) { return !name.empty() && variant.first().label.starts_with(name); });
  if (found.empty()) {
    return fail(ErrorCode::kNotFound,
                "no stored run is called '{}': give {} or more of its hexadecimal digits, or where it is from, as "
                "`shale cache ls` shows them",
                name, kPrefixDigitsMin);
  }
  const auto same = [&](const StoredVariant* variant) {
    return variant->run() == found[0]->run() && variant->model == found[0]->model;
  };
  if (!std::ranges::all_of(found, same)) {
    return fail(ErrorCode::kInvalidArgument, "several runs are called '{}': give the digits of one, or more of them",
                name);
  }
  return found;
}

std::vector<const StoredVariant*> with_descendants(const StoredListing& listing,
                                                   std::vector<const StoredVariant*> variants) {
  std::set<const StoredVariant*> chosen(variants.begin(), variants.end());
  for (bool grew = true; grew;) {
    grew = false;
    std::set<KeyOfTenant> gone, there;
    for (const StoredVariant& variant : listing.variants) {
      for (const ScannedExtent* extent : variant.extents) {
        const ExtentManifest& m = *extent->manifest;
        for (const BlockKey& key : m.keys)
          (chosen.contains(&variant) ? gone : there).insert({m.name_space, m.tenant, key});
      }
    }
    for (const StoredVariant& variant : listing.variants) {
      const KeyOfTenant parent = parent_key(variant);
      if (chosen.contains(&variant) || !gone.contains(parent) || there.contains(parent)) continue;
      chosen.insert(&variant);
      variants.push_back(&variant);
      grew = true;
    }
  }
  return variants;
}

Result<Removed> remove_variants(const StoredListing& listing, const std::vector<const StoredVariant*>& variants,
                                Progress& progress) {
  Removed removed;
  std::set<Hash128> left;  // runs of which something stays
  for (const StoredVariant& variant : listing.variants) {
    if (std::ranges::find(variants, &variant) == variants.end()) left.insert(variant.run());
  }
  for (std::size_t i = 0; i < variants.size(); ++i) {
    for (const ScannedExtent* extent : variants[i]->extents) {
      SHALE_TRY(check_interrupt());
      SHALE_TRY(remove_scanned(*variants[i]->tier->tier, variants[i]->tier->folder.get(), *extent));
      ++removed.extents;
      removed.bytes += extent->bytes;
    }
    if (!left.contains(variants[i]->run())) {
      for (const auto& metadata_store : listing.metadata_stores) SHALE_TRY(metadata_store->forget(variants[i]->run()));
    }
    progress(i + 1, variants.size());
  }
  return removed;
}

Json to_json(const StoredVariant& variant) {
  const ExtentManifest& m = variant.first();
  return {{"run", variant.run().hex()},
          {"parent", variant.parent == Hash128{} ? Json() : Json(variant.parent.hex())},
          {"label", m.label},
          {"model", variant.model},
          {"namespace", hex(m.name_space)},
          {"first_position", m.first_position},
          {"tokens", variant.tokens()},
          {"extents", variant.extents.size()},
          {"method", m.method.text()},
          {"keep", variant.keep()},
          {"tier", variant.tier->tier->name()},
          {"bytes", variant.bytes()},
          {"frequency", variant.frequency},
          {"pinned", variant.pinned}};
}

}  // namespace shale
