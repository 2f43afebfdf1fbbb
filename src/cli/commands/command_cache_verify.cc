#include <fmt/format.h>

#include "cli/commands/command_cache.h"
#include "core/interrupt.h"
#include "core/units.h"
#include "runtime/stored_runs.h"

namespace shale {
namespace {

struct VerifyOptions {
  StoredOptions stored;
  bool keep_broken = false;
};

struct Fault {
  BrokenExtent where;
  std::string what;
  bool damaged = false;  // for good
};

struct Verified {
  std::size_t extents = 0;
  std::uint64_t bytes = 0;
  std::vector<Fault> faults;
};

// Read back, one by one; what a running program removes meanwhile is no fault.
Result<Verified> verify_all(const StoredListing& listing, const OutputOptions& output) {
  Progress progress(output, "verifying");
  Verified verified;
  for (const BrokenExtent& broken : listing.broken) {
    if (broken.of_another_version()) continue;
    const Error& error = *broken.extent->error;
    verified.faults.push_back({broken, error.message, error.code == ErrorCode::kCorrupt});
  }
  for (const StoredVariant& variant : listing.variants) {
    Tier& tier = *variant.tier->tier;
    for (const ScannedExtent* extent : variant.extents) {
      SHALE_TRY(check_interrupt());
      const Status status = verify_extent(tier, *extent);
      if (status) {
        ++verified.extents;
        verified.bytes += extent->bytes;
      } else if (tier.contains(extent->blobs.front())) {
        const bool damaged = status.error().code != ErrorCode::kIo;
        verified.faults.push_back({{variant.tier, extent}, status.error().message, damaged});
      }
    }
    progress(verified.extents + verified.faults.size(), 0);
  }
  return verified;
}

// What cannot be removed is said and left. How many went.
std::size_t remove_all(const std::vector<BrokenExtent>& extents) {
  std::size_t removed = 0;
  for (const BrokenExtent& broken : extents) {
    if (broken.tier->tier->read_only()) continue;
    if (const Status status = remove_scanned(*broken.tier->tier, broken.tier->folder.get(), *broken.extent); !status) {
      print_note("shale: " + status.error().message);
    } else {
      ++removed;
    }
  }
  return removed;
}

std::vector<BrokenExtent> abandoned(const StoredListing& listing) {
  std::vector<BrokenExtent> found;
  for (const BrokenExtent& unfinished : listing.unfinished) {
    if (is_abandoned(*unfinished.tier->tier, *unfinished.extent)) found.push_back(unfinished);
  }
  return found;
}

std::vector<BrokenExtent> damaged(const Verified& verified) {
  std::vector<BrokenExtent> found;
  for (const Fault& fault : verified.faults) {
    if (fault.damaged) found.push_back(fault.where);
  }
  return found;
}

void print_result(const Verified& verified, bool json) {
  Json faults = Json::array();
  for (const Fault& fault : verified.faults) {
    const std::string& tier = fault.where.tier->tier->name();
    faults.push_back({{"tier", tier}, {"extent", fault.where.extent->name.hex()}, {"what", fault.what}});
    if (!json) fmt::print("{}: {}\n", tier, fault.what);
  }
  if (json) {
    print_json({{"extents", verified.extents}, {"bytes", verified.bytes}, {"faults", std::move(faults)}});
  } else {
    fmt::print("{} extents, {}: sound\n", verified.extents, format_bytes(verified.bytes));
  }
}

Status run_cache_verify(const VerifyOptions& options) {
  SHALE_ASSIGN(const StoredListing listing, list_stored(options.stored.tiers));
  SHALE_ASSIGN(const Verified verified, verify_all(listing, options.stored.output));
  print_result(verified, options.stored.output.json);
  if (!options.stored.output.json) print_other_versions(listing);
  std::size_t removed = 0;
  if (!options.keep_broken) {
    removed = remove_all(damaged(verified));
    remove_all(abandoned(listing));
  }
  if (verified.faults.empty()) return {};
  return fail(
      ErrorCode::kCorrupt,
      "{} extents are damaged or cannot be read; {} of them have been removed and are computed again when needed",
      verified.faults.size(), removed);
}

}  // namespace

void add_cache_verify(Command parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "verify",
                  "Read everything back and compare checksums; exit 1 when something is damaged", run_cache_verify);
  command.add_flag("--keep-broken", options->keep_broken, "Only report; do not remove what is damaged");
  add_stored_options(command, options->stored);
}

}  // namespace shale
