// The commands of `shale cache`, one file each. They read what is stored of every model and load no weights.
#pragma once

#include "cli/command.h"

namespace shale {

void add_cache_ls(CLI::App& parent, Action& chosen);
void add_cache_purge(CLI::App& parent, Action& chosen);
void add_cache_rm(CLI::App& parent, Action& chosen);
void add_cache_show(CLI::App& parent, Action& chosen);
void add_cache_verify(CLI::App& parent, Action& chosen);

}  // namespace shale
