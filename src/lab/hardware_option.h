// The hardware that a simulation emulates: a preset, or what somebody measured (docs/formats/hardware.md).
#pragma once

#include <string>

#include "cli/command_line.h"
#include "core/error.h"
#include "sim/hardware.h"

namespace shale {

// A preset's name, or a file's path. kInvalidArgument names the presets, or the file and what in it is wrong.
Result<Hardware> emulated_hardware(const std::string& name_or_path);

// --emulate, into `name_or_path`.
void add_hardware_option(Command command, std::string& name_or_path);
// --move-cost, into `ns_per_byte`.
void add_move_cost(Command command, double& ns_per_byte);

}  // namespace shale
