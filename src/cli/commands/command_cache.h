// The commands of `shale cache`, one file each. They read what is stored of every model and load no weights.
#pragma once

#include "cli/command.h"
#include "report/output.h"
#include "runtime/serving.h"
#include "runtime/stored_runs.h"

namespace shale {

// The options that every `cache` command has.
struct StoredOptions {
  TierChoice tiers;
  OutputOptions output;
};
void add_stored_options(Command command, StoredOptions& options);

// The option --pinned, for what removes.
void add_pinned_option(Command command, bool& pinned);

// What a command removed, as it says it.
void print_removed(const Removed& removed, const OutputOptions& output);

// A line about what another version of Shale stored, which no command but purge touches; none where there is nothing.
void print_other_versions(const StoredListing& listing);

void add_cache_ls(Command parent, Action& chosen);
void add_cache_purge(Command parent, Action& chosen);
void add_cache_rm(Command parent, Action& chosen);
void add_cache_show(Command parent, Action& chosen);
void add_cache_verify(Command parent, Action& chosen);

}  // namespace shale
