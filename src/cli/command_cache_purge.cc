#include <fmt/format.h>

#include "cli/command_cache.h"
#include "cli/stored_copies.h"
#include "core/units.h"

namespace shale {
namespace {

struct PurgeOptions {
  StoredOptions stored;
  std::string model;
};

Status run(const PurgeOptions& options) {
  SHALE_ASSIGN(const StoredListing listing, list_stored(options.stored.tiers));
  std::vector<const StoredCopy*> doomed;
  for (const StoredCopy& copy : listing.copies) {
    if (options.model.empty() || copy.manifest().fingerprint.model == options.model) doomed.push_back(&copy);
  }
  Progress progress(options.stored.output, "removing");
  SHALE_ASSIGN(Removed removed, remove_copies(listing, doomed, progress));
  if (options.model.empty()) {  // whose the rest was, nobody can tell; what another process is writing now stays
    for (const auto* rest : {&listing.broken, &listing.unfinished}) {
      for (const BrokenObject& object : *rest) {
        if (rest == &listing.unfinished && !object.abandoned) continue;
        SHALE_TRY(remove_object(*object.tier, object.object));
        ++removed.objects;
      }
    }
  }
  if (options.stored.output.json) {
    print_json({{"removed_objects", removed.objects}, {"removed_bytes", removed.bytes}});
  } else {
    fmt::print("removed {} objects, {}\n", removed.objects, format_bytes(removed.bytes));
  }
  return {};
}

}  // namespace

void add_cache_purge(CLI::App& parent, Action& chosen) {
  auto [command, options] =
      add_command(parent, chosen, "purge", "Remove every entry, or every entry of one model", run);
  command
      ->add_option("--model", options->model, "Only entries of the model with this name, as `shale cache ls` shows it")
      ->type_name("NAME")
      ->configurable(false);
  add_stored_options(*command, options->stored);
}

}  // namespace shale
