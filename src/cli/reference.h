// The reference of the command line, written from the same tables that parse it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace shale {

// Markdown: a section a command, a row an option. docs/reference/cli.md is this text.
std::string reference_markdown(const CLI::App& app);

}  // namespace shale
