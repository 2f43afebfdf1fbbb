// The commands of `shale trace`.
#pragma once

#include "cli/command.h"

namespace shale {

void add_trace_info(Command parent, Action& chosen);
void add_trace_make(Command parent, Action& chosen);

}  // namespace shale
