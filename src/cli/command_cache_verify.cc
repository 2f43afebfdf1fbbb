#include <fmt/format.h>

#include "cache/stored_queries.h"
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

// The captured queries that lie beside an object, where it has some.
Status verify_queries(const StoredCopy& copy) {
  const BlobId id{copy.stored.object, kQueriesPart};
  if (!copy.tier->contains(id)) return {};
  SHALE_ASSIGN(const BlobBytes bytes, copy.tier->read(id)->take());
  SHALE_TRY(parse_queries(bytes->bytes()));
  return {};
}

Status verify(const StoredCopy& copy) {
  SHALE_TRY(verify_object(*copy.tier, copy.stored));
  return verify_queries(copy);
}

Result<Verified> verify_all(StoredListing& listing, const OutputOptions& output) {
  Progress progress(output, "verifying");
  Verified verified;
  verified.faults = std::move(listing.broken);
  for (const StoredCopy& copy : listing.copies) {
    SHALE_TRY(check_interrupt());
    if (const Status status = verify(copy); !status) {
      verified.faults.push_back({copy.tier, copy.stored.object, status.error().message});
    } else {
      ++verified.objects;
      verified.bytes += copy.bytes();
    }
    progress(verified.objects + verified.faults.size(), listing.copies.size());
  }
  return verified;
}

// What is left is sound: broken objects and those that nobody will finish go.
Status remove_all(const std::vector<BrokenObject>& objects) {
  for (const BrokenObject& broken : objects) {
    if (!broken.tier->read_only()) SHALE_TRY(remove_object(*broken.tier, broken.object));
  }
  return {};
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
  if (!options.keep_broken) {
    SHALE_TRY(remove_all(verified.faults));
    SHALE_TRY(remove_all(listing.unfinished));
  }
  if (verified.faults.empty()) return {};
  return fail(ErrorCode::kCorrupt, "{} objects were damaged{}", verified.faults.size(),
              options.keep_broken ? "" : " and have been removed; they are computed again when needed");
}

}  // namespace

void add_cache_verify(CLI::App& parent, Action& chosen) {
  auto [command, options] = add_command(
      parent, chosen, "verify", "Read everything back and compare checksums; exit 1 when something is damaged", run);
  command->add_flag("--keep-broken", options->keep_broken, "Only report; do not remove what is damaged");
  add_stored_options(*command, options->stored);
}

}  // namespace shale
