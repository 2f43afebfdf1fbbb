// The commands of `shale simulate`.
#pragma once

#include "cli/command.h"

namespace shale {

void add_simulate_reproduce(CLI::App& parent, Action& chosen);
void add_simulate_tiers(CLI::App& parent, Action& chosen);
void add_simulate_fleet(CLI::App& parent, Action& chosen);

}  // namespace shale
