// Ctrl-C and SIGTERM: a flag that long work looks at between its steps.
#pragma once

#include "core/error.h"

namespace shale {

// From now on the first SIGINT or SIGTERM only sets the flag; the second ends the process as usual. Called again, it
// forgets what came before.
void catch_interrupts();

bool interrupted();
// Whether that was by SIGTERM, by which nobody means a part of the work.
bool told_to_end();

// kCancelled once interrupted.
Status check_interrupt();

}  // namespace shale
