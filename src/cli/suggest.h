// Guesses what was meant by an unknown word.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/cli11_fwd.h"

namespace shale {

// The command that the command line has named so far.
const CLI::App& deepest_command(const CLI::App& app);

// The word of `among` that is fewest insertions, deletions and replacements away (Levenshtein); empty where even that
// changes more than a third of the letters.
std::string_view nearest(std::string_view word, std::span<const std::string> among);

// " (did you mean 'generate'?)" for the first argument that nobody expected, a command's or an option's name;
// " (it is called '--max-queue' now)" for an option that was renamed; else empty.
std::string suggestion(const CLI::App& app);

// Names of environment variables that begin with SHALE_ and that nothing reads, with what they may mean.
std::vector<std::string> unknown_variables(const CLI::App& app);

}  // namespace shale
