#include <fmt/format.h>

#include "cli/command_cache.h"
#include "cli/stored_runs.h"
#include "core/units.h"

namespace shale {
namespace {

struct RmOptions {
  StoredOptions stored;
  std::string name;
};

Status run(const RmOptions& options) {
  SHALE_ASSIGN(const StoredListing listing, list_stored(options.stored.tiers));
  SHALE_ASSIGN(const auto variants, find_run(listing, options.name));
  const auto doomed = with_descendants(listing, variants);
  Progress progress(options.stored.output, "removing");
  SHALE_ASSIGN(const Removed removed, remove_variants(listing, doomed, progress));
  if (options.stored.output.json) {
    print_json({{"removed_extents", removed.extents}, {"removed_bytes", removed.bytes}});
  } else {
    fmt::print("removed {} extents, {}\n", removed.extents, format_bytes(removed.bytes));
  }
  return {};
}

}  // namespace

void add_cache_rm(CLI::App& parent, Action& chosen) {
  auto [command, options] = add_command(parent, chosen, "rm", "Remove a run and what was computed on top of it", run);
  command->add_option("RUN", options->name, "The run's name, its first digits, or what it is from")
      ->required()
      ->configurable(false);
  add_stored_options(*command, options->stored);
}

}  // namespace shale
