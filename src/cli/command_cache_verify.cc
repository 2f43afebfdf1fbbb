#include <fmt/format.h>

#include "cache/stored_observations.h"
#include "cli/command_cache.h"
#include "cli/interrupt.h"
#include "cli/stored_copies.h"
#include "core/units.h"

namespace shale {
namespace {

struct VerifyOptions {
  StoredOptions stored;
  bool keep_broken = false;
};

struct Verified {
  std::size_t objects = 0;
  std::uint64_t bytes = 0;
  std::vector<BrokenObject> faults;
};

bool removed_meanwhile(const StoredCopy& copy) { return !copy.tier->contains({copy.stored.object, BlobId::kManifest}); }

// The observations that lie beside an object, where it has some.
Status verify_observations(const StoredCopy& copy) {
  const BlobId id{copy.stored.object, kObservationsPart};
  if (!copy.tier->contains(id)) return {};
  SHALE_ASSIGN(const BlobBytes bytes, copy.tier->read(id)->take());
  const auto observations = parse_observations(bytes->bytes());
  if (!observations && observations.error().code != ErrorCode::kMismatch) return std::unexpected(observations.error());
  return {};
}

Status verify(const StoredCopy& copy) {
  SHALE_TRY(verify_object(*copy.tier, copy.stored));
  return verify_observations(copy);
}

Result<Verified> verify_all(StoredListing& listing, const OutputOptions& output) {
  Progress progress(output, "verifying");
  Verified verified;
  verified.faults = std::move(listing.broken);
  for (const StoredCopy& copy : listing.copies) {
    SHALE_TRY(check_interrupt());
    if (const Status status = verify(copy); !status) {
      const bool damaged = status.error().code == ErrorCode::kCorrupt;
      if (!damaged && removed_meanwhile(copy)) continue;
      verified.faults.push_back({copy.tier, copy.stored.object, status.error().message, damaged});
    } else {
      ++verified.objects;
      verified.bytes += copy.object().bytes();
    }
    progress(verified.objects + verified.faults.size(), listing.copies.size());
  }
  return verified;
}

// Damaged objects and those that nobody will finish. How many went; what cannot be removed is said and left.
std::size_t remove_abandoned(const std::vector<BrokenObject>& objects) {
  std::size_t removed = 0;
  for (const BrokenObject& broken : objects) {
    if (!broken.abandoned || broken.tier->read_only()) continue;
    if (const Status status = remove_object(*broken.tier, broken.object); !status) {
      print_note("shale: " + status.error().message);
    } else {
      ++removed;
    }
  }
  return removed;
}

void print_result(const Verified& verified, bool json) {
  Json faults = Json::array();
  for (const BrokenObject& fault : verified.faults) {
    faults.push_back({{"tier", fault.tier->name()}, {"object", fault.object.hex()}, {"what", fault.what}});
    if (!json) fmt::print("{}: {}\n", fault.tier->name(), fault.what);
  }
  if (json) {
    print_json({{"objects", verified.objects}, {"bytes", verified.bytes}, {"faults", std::move(faults)}});
  } else {
    fmt::print("{} objects, {}: sound\n", verified.objects, format_bytes(verified.bytes));
  }
}

Status run(const VerifyOptions& options) {
  SHALE_ASSIGN(StoredListing listing, list_stored(options.stored.tiers));
  SHALE_ASSIGN(const Verified verified, verify_all(listing, options.stored.output));
  print_result(verified, options.stored.output.json);
  std::size_t removed = 0;
  if (!options.keep_broken) {
    removed = remove_abandoned(verified.faults);
    remove_abandoned(listing.unfinished);
  }
  if (verified.faults.empty()) return {};
  return fail(
      ErrorCode::kCorrupt,
      "{} objects are damaged or cannot be used; {} of them have been removed and are computed again when needed",
      verified.faults.size(), removed);
}

}  // namespace

void add_cache_verify(CLI::App& parent, Action& chosen) {
  auto [command, options] = add_command(
      parent, chosen, "verify", "Read everything back and compare checksums; exit 1 when something is damaged", run);
  command->add_flag("--keep-broken", options->keep_broken, "Only report; do not remove what is damaged");
  add_stored_options(*command, options->stored);
}

}  // namespace shale
