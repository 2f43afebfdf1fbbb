// The commands of `shale simulate`.
#pragma once

#include "cli/command.h"

namespace shale {

void add_simulate_reproduce(Command parent, Action& chosen);
void add_simulate_tiers(Command parent, Action& chosen);
void add_simulate_fleet(Command parent, Action& chosen);

}  // namespace shale
