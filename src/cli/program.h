// The program `shale`: reads command line, environment and configuration, runs one subcommand.
#pragma once

#include "cli/command.h"

namespace shale {

// Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted. Errors are one line on stderr: "shale: …".
int run_program(int argc, const char* const* argv, void (*add_all)(Command app, Action& chosen));

}  // namespace shale
