// The commands of `shale trace`.
#pragma once

#include "cli/command.h"

namespace shale {

void add_trace_info(CLI::App& parent, Action& chosen);
void add_trace_make(CLI::App& parent, Action& chosen);

}  // namespace shale
