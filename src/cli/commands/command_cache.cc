#include "cli/commands/command_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/option_types.h"
#include "cli/serving_options.h"
#include "core/units.h"

namespace shale {

void add_stored_options(Command command, StoredOptions& options) {
  add_folder_options(command, options.tiers);
  add_output_options(command, options.output);
}

void add_pinned_option(Command command, bool& pinned) {
  command.add_flag("--pinned", pinned, "Remove what running processes have pinned, too").configurable(false);
}

void print_removed(const Removed& removed, const OutputOptions& output) {
  if (output.json) {
    print_json({{"removed_extents", removed.extents}, {"removed_bytes", removed.bytes}});
  } else {
    fmt::print("removed {} extents, {}\n", removed.extents, format_bytes(removed.bytes));
  }
}

void print_other_versions(const StoredListing& listing) {
  const auto count = std::ranges::count_if(listing.broken, &BrokenExtent::of_another_version);
  if (count > 0) {
    fmt::print("{} extents or objects are of another version of Shale; `shale cache purge` removes them\n", count);
  }
}

void add_cache(Command parent, Action& chosen) {
  Command group = parent.add_group("cache", "See and keep in order what is stored");
  group.footer(
      "Examples:\n"
      "  shale cache ls\n"
      "  shale cache verify\n"
      "  shale cache purge --model smollm2-135m");
  add_cache_ls(group, chosen);
  add_cache_show(group, chosen);
  add_cache_verify(group, chosen);
  add_cache_rm(group, chosen);
  add_cache_purge(group, chosen);
}

}  // namespace shale
