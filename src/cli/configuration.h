// The configuration file: TOML, weaker than the environment and the command line.
//
//   model = "smollm2-135m"       # a key at the top holds for every command that shares the option
//   pool = "1GiB"
//   [generate]                   # a key in a command's section holds for that command, and before one at the top
//   max-tokens = 64
//   [cache.verify]               # of a group
//   json = true
//
// A key that no command of the program has, or a value that the option refuses, is an error; sections of commands that
// are in another program are left to it.
#pragma once

#include <filesystem>

#include "cli/cli11_fwd.h"

namespace shale {

// Adds --config (SHALE_CONFIG); without it ${XDG_CONFIG_HOME:-~/.config}/shale/config.toml is read where it exists.
void add_configuration(CLI::App& app);
}  // namespace shale
