// Options that had another name. The old name is an error that tells the new one, on the command line, in the
// environment and in a configuration file.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace shale {

struct RenamedOption {
  std::string_view old_name, new_name;  // without --
};
std::span<const RenamedOption> renamed_options();

// The new name of the option `old_name` ("queue", without --); empty where it was never renamed.
std::string_view renamed_option(std::string_view old_name);

// SHALE_MAX_QUEUE for SHALE_QUEUE; empty where no renamed option was read from this variable.
std::string renamed_variable(std::string_view old_name);

}  // namespace shale
