#include "cli/stored_copies.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <set>
#include <tuple>

#include "cache/entry_index.h"
#include "cli/interrupt.h"

namespace shale {
namespace {

constexpr std::size_t kPrefixDigitsMin = 4;

bool is_key_prefix(std::string_view text) {
  return text.size() >= kPrefixDigitsMin && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Status scan(Tier& tier, StoredListing& listing) {
  SHALE_ASSIGN(auto objects, scan_objects(tier));
  for (StoredManifest& stored : objects) {
    if (!stored.error) {
      listing.copies.push_back({&tier, std::move(stored), {}});
    } else {
      auto& list = stored.error->code == ErrorCode::kNotFound ? listing.unfinished : listing.broken;
      list.push_back({&tier, stored.object, stored.error->message, stored.abandoned});
    }
  }
  return {};
}

// Labels are a help for people: a catalogue that cannot be read gives none.
void add_labels(const std::filesystem::path& catalogue_file, StoredListing& listing) {
  std::error_code ignored;
  if (!std::filesystem::exists(catalogue_file, ignored)) return;
  std::map<EntryKey, std::string> labels;
  for (StoredCopy& copy : listing.copies) {
    const Hash128& fingerprint = copy.manifest().fingerprint.hash;
    if (!listing.catalogues.contains(fingerprint)) {
      auto catalogue = Catalogue::open(catalogue_file, fingerprint);
      if (!catalogue) return;
      if (const auto entries = (*catalogue)->entries()) {
        for (const EntryRecord& entry : *entries) labels[entry.key] = entry.label;
      }
      listing.catalogues[fingerprint] = std::move(*catalogue);
    }
    copy.label = labels[copy.manifest().key];
  }
}

}  // namespace

StoredObject StoredCopy::object() const {
  return {.manifest = stored.manifest, .strata = stored.strata, .bits = stored.bits};
}

void add_stored_options(CLI::App& command, StoredOptions& options) {
  add_folder_options(command, options.tiers);
  add_output_options(command, options.output);
}

Result<StoredListing> list_stored(const TierChoice& choice) {
  const static RealClock clock;
  StoredListing listing;
  SHALE_ASSIGN(const std::vector<TierSpec> specs, tier_specs(choice));
  SHALE_ASSIGN(listing.tiers, open_tiers(specs, clock));
  std::erase_if(listing.tiers, [](const auto& tier) { return !tier->persistent(); });
  for (const auto& tier : listing.tiers) SHALE_TRY(scan(*tier, listing));
  const auto order_of = [&listing](const Tier* tier) {
    return std::ranges::find(listing.tiers, tier, &std::unique_ptr<Tier>::get) - listing.tiers.begin();
  };
  std::ranges::sort(listing.copies, {}, [&](const StoredCopy& copy) {
    const Manifest& m = copy.manifest();
    return std::tuple(m.fingerprint.model, m.fingerprint.hash, m.first_position, m.key, order_of(copy.tier), m.method);
  });
  add_labels(catalogue_file(specs).value_or(cache_folder(choice) / kCatalogueName), listing);
  return listing;
}

Result<std::vector<const StoredCopy*>> find_entry(const StoredListing& listing, std::string_view prefix) {
  if (!is_key_prefix(prefix)) {
    return fail(ErrorCode::kInvalidArgument,
                "'{}' is not a key: give {} or more of its hexadecimal digits, as `shale cache ls` shows them", prefix,
                kPrefixDigitsMin);
  }
  std::vector<const StoredCopy*> found;
  for (const StoredCopy& copy : listing.copies) {
    if (copy.manifest().key.hex().starts_with(prefix)) found.push_back(&copy);
  }
  if (found.empty()) return fail(ErrorCode::kNotFound, "no stored entry has a key that begins with {}", prefix);
  const bool one = std::ranges::all_of(
      found, [&](const StoredCopy* copy) { return copy->manifest().key == found[0]->manifest().key; });
  if (!one)
    return fail(ErrorCode::kInvalidArgument, "several entries have keys that begin with {}; give more digits", prefix);
  return found;
}

std::vector<const StoredCopy*> with_descendants(const StoredListing& listing, const EntryKey& key) {
  std::vector<const StoredCopy*> found;
  std::set<EntryKey> keys = {key};
  for (bool grew = true; grew;) {
    grew = false;
    for (const StoredCopy& copy : listing.copies) {
      if (keys.contains(copy.manifest().parent)) grew |= keys.insert(copy.manifest().key).second;
    }
  }
  for (const StoredCopy& copy : listing.copies) {
    if (keys.contains(copy.manifest().key)) found.push_back(&copy);
  }
  return found;
}

Result<Removed> remove_copies(const StoredListing& listing, const std::vector<const StoredCopy*>& copies,
                              Progress& progress) {
  Removed removed;
  for (const StoredCopy* copy : copies) {
    SHALE_TRY(check_interrupt());
    SHALE_TRY(remove_object(*copy->tier, copy->stored.object));
    const auto catalogue = listing.catalogues.find(copy->manifest().fingerprint.hash);
    if (catalogue != listing.catalogues.end()) SHALE_TRY(catalogue->second->forget(copy->manifest().key));
    ++removed.objects;
    removed.bytes += copy->object().bytes();
    progress(removed.objects, copies.size());
  }
  return removed;
}

Json to_json(const StoredCopy& copy) {
  const Manifest& m = copy.manifest();
  return {{"key", m.key.hex()},
          {"parent", m.parent == EntryKey{} ? Json() : Json(m.parent.hex())},
          {"label", copy.label},
          {"model", m.fingerprint.model},
          {"fingerprint", m.fingerprint.hash.hex()},
          {"first_position", m.first_position},
          {"tokens", m.tokens.size()},
          {"method", copy.object().method().text()},
          {"keep", copy.object().keep()},
          {"tier", copy.tier->name()},
          {"bytes", copy.object().bytes()}};
}

}  // namespace shale
