#include <fmt/format.h>

#include "cli/command_cache.h"
#include "cli/stored_copies.h"
#include "core/units.h"

namespace shale {
namespace {

struct RmOptions {
  StoredOptions stored;
  std::string key;
};

Status run(const RmOptions& options) {
  SHALE_ASSIGN(const StoredListing listing, list_stored(options.stored.tiers));
  SHALE_ASSIGN(const auto copies, find_entry(listing, options.key));
  const auto doomed = with_descendants(listing, copies[0]->manifest().key);
  Progress progress(options.stored.output, "removing");
  SHALE_ASSIGN(const Removed removed, remove_copies(listing, doomed, progress));
  if (options.stored.output.json) {
    print_json({{"removed_objects", removed.objects}, {"removed_bytes", removed.bytes}});
  } else {
    fmt::print("removed {} objects, {}\n", removed.objects, format_bytes(removed.bytes));
  }
  return {};
}

}  // namespace

void add_cache_rm(CLI::App& parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "rm", "Remove an entry and what was computed on top of it", run);
  command->add_option("KEY", options->key, "The entry's key, or its first digits")->required()->configurable(false);
  add_stored_options(*command, options->stored);
}

}  // namespace shale
