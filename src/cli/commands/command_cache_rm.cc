#include <algorithm>

#include "cli/commands/command_cache.h"
#include "runtime/stored_runs.h"

namespace shale {
namespace {

struct RmOptions {
  StoredOptions stored;
  std::string name;
  bool pinned = false;
};

Status run_cache_rm(const RmOptions& options) {
  SHALE_ASSIGN(const StoredListing listing, list_stored(options.stored.tiers));
  SHALE_ASSIGN(const auto variants, find_run(listing, options.name));
  const auto doomed = with_descendants(listing, variants);
  const auto pinned = std::ranges::find(doomed, true, &StoredVariant::pinned);
  if (pinned != doomed.end() && !options.pinned) {
    return fail(ErrorCode::kInvalidArgument,
                "run {} is pinned by a running process; with --pinned it is removed all the same",
                (*pinned)->run().hex());
  }
  Progress progress(options.stored.output, "removing");
  SHALE_ASSIGN(const Removed removed, remove_variants(listing, doomed, progress));
  print_removed(removed, options.stored.output);
  return {};
}

}  // namespace

void add_cache_rm(Command parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "rm", "Remove a run and what was computed on top of it", run_cache_rm);
  command.add_option("RUN", options->name, "The run's name, its first digits, or what it is from")
      .required()
      .configurable(false);
  add_pinned_option(command, options->pinned);
  add_stored_options(command, options->stored);
}

}  // namespace shale
