// Values that no option with a number takes, wherever they were given: on the command line, in the environment or in a
// configuration file.
#pragma once

#include "cli/cli11_fwd.h"

namespace shale {

// Throws CLI::ValidationError, which names the option, for a number that is none (nan), negative, infinite or too large
// for any option. CLI11 takes these: it compares nan with bounds, and wraps or clips what does not fit. --half-life may
// be inf.
void check_numbers(const CLI::App& app);

}  // namespace shale
