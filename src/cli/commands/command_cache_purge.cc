#include "cli/commands/command_cache.h"
#include "runtime/stored_runs.h"

namespace shale {
namespace {

struct PurgeOptions {
  StoredOptions stored;
  std::string model;
  bool pinned = false;
};

Status run_cache_purge(const PurgeOptions& options) {
  SHALE_ASSIGN(const StoredListing listing, list_stored(options.stored.tiers));
  std::vector<const StoredVariant*> doomed;
  for (const StoredVariant& variant : listing.variants) {
    const bool meant = options.model.empty() || variant.model == options.model;
    if (meant && (!variant.pinned || options.pinned)) doomed.push_back(&variant);
  }
  Progress progress(options.stored.output, "removing");
  SHALE_ASSIGN(Removed removed, remove_variants(listing, doomed, progress));
  if (options.model.empty()) {  // whose the rest was, nobody can tell; what another process is writing now stays
    for (const auto* rest : {&listing.broken, &listing.unfinished}) {
      for (const BrokenExtent& broken : *rest) {
        if (rest == &listing.unfinished && !is_abandoned(*broken.tier->tier, *broken.extent)) continue;
        SHALE_TRY(remove_scanned(*broken.tier->tier, broken.tier->folder.get(), *broken.extent));
        ++removed.extents;
      }
    }
  }
  print_removed(removed, options.stored.output);
  return {};
}

}  // namespace

void add_cache_purge(Command parent, Action& chosen) {
  auto [command, options] = add_command(
      parent, chosen, "purge", "Remove everything that is stored and not pinned, or all of one model", run_cache_purge);
  command
      .add_option("--model", options->model,
                  "Only what belongs to the model with this name, as `shale cache ls` shows it")
      .type_name("NAME")
      .configurable(false);
  add_pinned_option(command, options->pinned);
  add_stored_options(command, options->stored);
}

}  // namespace shale
